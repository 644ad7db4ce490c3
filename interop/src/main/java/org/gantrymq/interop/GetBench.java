package org.gantrymq.interop;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/** How fast RocketMQ's getMessage walks through every queue; with {@code --decode} each message is decoded as well. */
final class GetBench implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " [--batch N] [--decode] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        int batch = options.integer("batch", 32);
        Store store = Store.open(options);
        Stopwatch watch = new Stopwatch();
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
                if (options.has("decode")) {
                    decode(result);
                }
                result.release();
            }
        }
        double seconds = watch.seconds();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("messages", messages);
        line.put("bytes", bytes);
        line.put("seconds", seconds);
        line.put("perSecond", messages / seconds);
        out.line(line);
        out.flush();
        store.close(options);
        return 0;
    }

    private static void decode(GetMessageResult result) {
        for (ByteBuffer message : result.getMessageBufferList()) {
            if (MessageDecoder.decode(message, true, false) == null) {
                throw new IllegalStateException("a message does not decode");
            }
        }
    }
}
