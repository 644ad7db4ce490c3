package org.gantrymq.interop;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.QueryMessageResult;

/** Measures how fast RocketMQ finds the messages of put-bench by random keys. Every answer is decoded. */
final class QueryBench implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " --messages N [--count N] [--warm-up N] [--topic T] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        long messages = options.number("messages", 1);
        int count = options.integer("count", 10_000);
        String topic = options.text("topic", "bench");
        Random random = new Random(1);
        Store store = Store.open(options);
        for (int i = options.integer("warm-up", 1); i > 0; i--) {
            find(store, topic, "key-" + random.nextLong(messages));
        }
        Stopwatch watch = new Stopwatch();
        for (int i = 0; i < count; i++) {
            find(store, topic, "key-" + random.nextLong(messages));
        }
        double seconds = watch.seconds();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("count", count);
        line.put("seconds", seconds);
        line.put("perSecond", count / seconds);
        out.line(line);
        out.flush();
        store.close(options);
        return 0;
    }

    private static void find(Store store, String topic, String key) {
        QueryMessageResult result = store.real().queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
        boolean found = false;
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(buffer, true, false);
            found |= message != null && key.equals(message.getKeys());
        }
        result.release();
        if (!found) {
            throw new IllegalStateException(key + " is not found");
        }
    }
}
