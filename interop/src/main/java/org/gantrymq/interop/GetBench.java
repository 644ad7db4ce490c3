package org.gantrymq.interop;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/**
 * Measures how fast RocketMQ's getMessage reads every queue. With {@code --decode} each message is decoded too; with
 * {@code --warm-up} all messages are read once before the measurement.
 */
final class GetBench implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " [--batch N] [--decode] [--warm-up] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        int batch = options.integer("batch", 32);
        Store store = Store.open(options);
        if (options.has("warm-up")) {
            walk(store, batch, options.has("decode"));
        }
        Stopwatch watch = new Stopwatch();
        Found found = walk(store, batch, options.has("decode"));
        double seconds = watch.seconds();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("messages", found.messages);
        line.put("bytes", found.bytes);
        line.put("seconds", seconds);
        line.put("perSecond", found.messages / seconds);
        out.line(line);
        out.flush();
        store.close(options);
        return 0;
    }

    private record Found(long messages, long bytes) {
    }

    private static Found walk(Store store, int batch, boolean decodes) {
        long messages = 0;
        long bytes = 0;
        for (ConsumeQueueInterface queue : store.queues()) {
            long next = queue.getMinOffsetInQueue();
            while (true) {
                GetMessageResult result = store.real()
                    .getMessage("bench", queue.getTopic(), queue.getQueueId(), next, batch, null);
                if (result.getStatus() != GetMessageStatus.FOUND) {
                    break;
                }
                messages += result.getMessageCount();
                bytes += result.getBufferTotalSize();
                next = result.getNextBeginOffset();
                if (decodes) {
                    decode(result);
                }
                result.release();
            }
        }
        return new Found(messages, bytes);
    }

    private static void decode(GetMessageResult result) {
        for (ByteBuffer message : result.getMessageBufferList()) {
            if (MessageDecoder.decode(message, true, false) == null) {
                throw new IllegalStateException("a message does not decode");
            }
        }
    }
}
