package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.BoundaryType;

/**
 * Prints the queue offset that RocketMQ finds for a time, by default with the LOWER boundary. {@code --questions FILE}
 * has JSON lines {@code {"topic","queueId","timestamp"}}. A missing queue has offset 0 for every time.
 */
final class At implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " (--topic T --queue Q --timestamp MS | --questions FILE) [--boundary LOWER|UPPER] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        Store store = Store.open(options);
        answer(store, options, out);
        out.flush();
        store.close(options);
        return 0;
    }

    static void answer(Store store, Options options, JsonLines out) throws Exception {
        BoundaryType boundary = BoundaryType.valueOf(options.text("boundary", "LOWER"));
        for (JSONObject question : questions(options)) {
            String topic = question.getString("topic");
            int queueId = question.getIntValue("queueId");
            long timestamp = question.getLongValue("timestamp");
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("topic", topic);
            line.put("queueId", queueId);
            line.put("timestamp", timestamp);
            line.put("queueOffset", store.real().getOffsetInQueueByTime(topic, queueId, timestamp, boundary));
            out.line(line);
        }
    }

    private static List<JSONObject> questions(Options options) throws Exception {
        if (options.has("questions")) {
            return Files.readAllLines(Path.of(options.text("questions"))).stream().map(JSON::parseObject).toList();
        }
        return List.of(JSONObject.of(
            "topic", options.text("topic"), "queueId", options.number("queue"), "timestamp", options.number("timestamp")));
    }
}
