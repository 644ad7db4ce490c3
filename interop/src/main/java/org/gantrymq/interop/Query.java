package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Prints what RocketMQ's index finds, in its order. {@code --queries FILE} has one JSON object whose names are {@code
 * topic|key}. Its values are ignored, so a golden store's queries.json can be used.
 */
final class Query implements Command {
    private record Question(String topic, String key) {
        static Question parse(String text) {
            int bar = text.indexOf('|');
            return new Question(text.substring(0, bar), text.substring(bar + 1));
        }
    }

    @Override
    public String usage() {
        return Store.USAGE + " (--topic T --key K | --queries FILE) [--begin MS] [--end MS] [--max N] [--type T] [--halt]";
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
        List<Question> questions = questions(options);
        int max = options.integer("max", Integer.MAX_VALUE);
        long begin = options.number("begin", 0);
        long end = options.number("end", Long.MAX_VALUE);
        DefaultMessageStore real = store.real();
        // QueryOffset allocates memory for max entries.
        int most = Math.min(max, real.getMessageStoreConfig().getMaxMsgsNumBatch());
        for (Question question : questions) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("topic", question.topic);
            line.put("key", question.key);
            line.put("phyOffsets", real.getIndexService()
                .queryOffset(question.topic, question.key, most, begin, end, options.text("type", null))
                .getPhyOffsets());
            out.line(line);
        }
    }

    private static List<Question> questions(Options options) throws Exception {
        List<Question> questions = new ArrayList<>();
        if (options.has("queries")) {
            JSON.parseObject(Files.readString(Path.of(options.text("queries"))))
                .keySet().forEach(text -> questions.add(Question.parse(text)));
        } else {
            questions.add(new Question(options.text("topic"), options.text("key")));
        }
        return questions;
    }
}
