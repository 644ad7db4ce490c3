package org.gantrymq.interop;

import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * The real push consumer reads a number of messages of a topic from the beginning. The time runs from the first to the
 * last of them.
 */
final class LoadPush {
    private final AtomicLong got = new AtomicLong();
    private final AtomicLong first = new AtomicLong();
    private final AtomicLong last = new AtomicLong();

    private LoadPush() {
    }

    static Map<String, Object> run(Options options) throws Exception {
        if (options.integer("warm-up", 0) > 0) {
            new LoadPush().consume(options);
        }
        return new LoadPush().consume(options);
    }

    private Map<String, Object> consume(Options options) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load-" + System.nanoTime());
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(options.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            first.compareAndSet(0, now);
            last.set(now);
            got.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.currentTimeMillis() + options.integer("seconds", 60) * 1000L;
        while (got.get() < options.number("count") && System.currentTimeMillis() < deadline) {
            Thread.sleep(5);
        }
        double seconds = (last.get() - first.get()) / 1e9;
        consumer.shutdown();
        return Map.of("mode", "push", "messages", got.get(), "seconds", seconds, "rate", got.get() / seconds,
            "failed", 0);
    }
}
