package org.gantrymq.interop;

import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The real consumer reads every message of a topic, queue by queue from the beginning, and prints it as {@code dump}
 * does. Bodies are decompressed by the client, and {@code uniqKey} is the id that the client calls msgId.
 */
final class Pull implements Command {
    private static final long IDLE_MS = 3000;
    private static final int SEEKS = 5;

    @Override
    public String usage() {
        return "--namesrv ADDRESS --topic TOPIC [--count N] [--binary]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        if (options.has("binary")) {
            System.setProperty("rocketmq.serialize.type", "ROCKETMQ");
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("interop-consumer");
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(options.text("topic"));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            seekToBegin(consumer, queue);
        }
        long count = options.number("count", Long.MAX_VALUE);
        List<MessageExt> messages = new java.util.ArrayList<>();
        long last = System.currentTimeMillis();
        while (messages.size() < count && System.currentTimeMillis() - last < IDLE_MS) {
            List<MessageExt> some = consumer.poll(200);
            last = some.isEmpty() ? last : System.currentTimeMillis();
            messages.addAll(some);
        }
        messages.sort(Comparator.comparing(MessageExt::getQueueId).thenComparing(MessageExt::getQueueOffset));
        messages.forEach(message -> out.line(line(message)));
        consumer.shutdown();
        return 0;
    }

    /**
     * Retries a seek. The consumer interrupts its own pulls when it seeks, and may interrupt the request for the
     * queue's minimum offset too.
     */
    private static void seekToBegin(DefaultLitePullConsumer consumer, MessageQueue queue) throws MQClientException {
        for (int left = SEEKS; true; left--) {
            try {
                consumer.seekToBegin(queue);
                return;
            } catch (MQClientException error) {
                if (left == 1) {
                    throw error;
                }
            }
        }
    }

    private static Map<String, Object> line(MessageExt message) {
        return new MessageLine(message.getTopic(), message.getQueueId(), message.getQueueOffset(),
            message.getCommitLogOffset(), message.getStoreSize())
            .with("uniqKey", message.getMsgId())
            .of(message);
    }
}
