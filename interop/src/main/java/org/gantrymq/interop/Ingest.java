package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONException;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * {@code gantrymq store ingest} with RocketMQ's store: the same input lines, the same result lines. Properties are
 * stored in this order: those of the input in their order, TAGS, KEYS (neither if empty, as in RocketMQ's Message),
 * DELAY, REAL_TOPIC, REAL_QID. A result has the topic and queue in which the message is stored.
 */
final class Ingest implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " FILE [--born-host IP:PORT] [--store-host IP:PORT] [--fixed-time MS]"
            + " [--store-time MS [--store-time-step MS]] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        String file = options.positional("FILE");
        FixedClock clock = FixedClock.of(options);
        Store store = Store.open(options, clock);
        int rejected = 0;
        try (BufferedReader input = open(file)) {
            int number = 1;
            for (String text = input.readLine(); text != null; text = input.readLine(), number++) {
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("line", number);
                put(store, options, text, line);
                out.line(line);
                out.flush();
                rejected += "PUT_OK".equals(line.get("status")) ? 0 : 1;
                if (clock != null) {
                    clock.advance(options.number("store-time-step", 0));
                }
            }
        }
        store.awaitDispatch();
        store.close(options);
        return rejected == 0 ? 0 : 1;
    }

    private static BufferedReader open(String file) throws IOException {
        return file.equals("-") ? new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))
            : Files.newBufferedReader(Path.of(file));
    }

    private static void put(Store store, Options options, String text, Map<String, Object> line) {
        Put put;
        try {
            put = Put.single(message(JSON.parseObject(text), options, store.real().getMaxDelayLevel()));
        } catch (JSONException | IllegalArgumentException | ClassCastException e) {
            line.put("status", "INVALID_LINE");
            line.put("error", String.valueOf(e.getMessage()));
            return;
        }
        PutMessageResult result = put.into(store.real());
        line.put("status", result.getPutMessageStatus().name());
        line.put("topic", put.message().getTopic());
        line.put("queueId", put.message().getQueueId());
        if (result.isOk()) {
            Map<String, Object> stored = Acknowledgement.lines(put, result).get(0);
            line.put("phyOffset", stored.get("phyOffset"));
            line.put("queueOffset", stored.get("queueOffset"));
            line.put("msgId", stored.get("msgId"));
        }
    }

    private static MessageExtBrokerInner message(JSONObject input, Options options, int lastDelayLevel) {
        String topic = input == null ? null : input.getString("topic");
        if (topic == null || input.containsKey("body") == input.containsKey("bodyBase64")) {
            throw new IllegalArgumentException("topic, and one of body and bodyBase64, are needed");
        }
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(input.getIntValue("queueId"));
        message.setBody(input.containsKey("body") ? input.getString("body").getBytes(StandardCharsets.UTF_8)
            : Base64.getDecoder().decode(input.getString("bodyBase64")));
        message.setBornTimestamp(options.number("fixed-time", System.currentTimeMillis()));
        message.setBornHost(Hosts.parse(options.text("born-host", "127.0.0.1:0")));
        message.setStoreHost(Hosts.parse(options.text("store-host", "127.0.0.1:0")));
        Put.setProperties(message, properties(input));
        if (input.getIntValue("delayLevel") > 0) {
            DelayLevel.schedule(message, input.getIntValue("delayLevel"), lastDelayLevel);
        }
        return message;
    }

    private static Map<String, String> properties(JSONObject input) {
        Map<String, String> properties = new LinkedHashMap<>();
        if (input.containsKey("properties")) {
            input.getJSONObject("properties").forEach((name, value) -> properties.put(name, (String) value));
        }
        String tags = input.getString("tags");
        if (tags != null && !tags.isEmpty()) {
            properties.put(MessageConst.PROPERTY_TAGS, tags);
        }
        List<String> keys = input.getList("keys", String.class);
        if (keys != null && !keys.isEmpty()) {
            properties.put(MessageConst.PROPERTY_KEYS, String.join(MessageConst.KEY_SEPARATOR, keys));
        }
        return properties;
    }
}
