package org.gantrymq.interop;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Measures the latency of messages. The real producer sends a fixed number of messages a second asynchronously, and the
 * real push consumer in the same process reads them. A message's latency begins when it is due, even if the producer is
 * late, and ends when the listener has it. Messages of the warm-up do not count.
 */
final class LoadLatency {
    private static final long ARRIVE_WITHIN_S = 30;
    private static final String UNCONSUMED = "not being consumed within " + ARRIVE_WITHIN_S + " s of the last send";

    private final AtomicLongArray nanos;
    private final AtomicInteger arrived = new AtomicInteger();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>(UNCONSUMED);
    private final CountDownLatch ready = new CountDownLatch(1);
    private volatile long countsFrom = Long.MAX_VALUE;

    private LoadLatency(int messages) {
        nanos = new AtomicLongArray(messages);
    }

    static Map<String, Object> run(Options options) throws Exception {
        int rate = options.integer("rate", 1000);
        LoadLatency load = new LoadLatency(rate * options.integer("seconds", 5));
        DefaultMQProducer producer = new DefaultMQProducer("load-" + System.nanoTime());
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
        String topic = options.text("topic");
        int size = options.integer("size", 1024);
        producer.send(message(topic, size, 0)); // creates the topic
        DefaultMQPushConsumer consumer = load.consumer(options.text("namesrv"), topic);
        if (!load.ready.await(ARRIVE_WITHIN_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer gets nothing");
        }
        load.send(producer, topic, size, rate, rate * options.integer("warm-up", 0));
        load.await();
        producer.shutdown();
        consumer.shutdown();
        return load.line();
    }

    private static Message message(String topic, int size, long due) {
        return new Message(topic, ByteBuffer.allocate(Math.max(size, Long.BYTES)).putLong(due).array());
    }

    private DefaultMQPushConsumer consumer(String namesrv, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            messages.forEach(message -> note(now, ByteBuffer.wrap(message.getBody()).getLong()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private void note(long now, long due) {
        ready.countDown();
        if (due - countsFrom >= 0 && countsFrom != Long.MAX_VALUE) {
            int place = arrived.getAndIncrement();
            if (place < nanos.length()) {
                nanos.set(place, now - due);
            }
        }
    }

    private void send(DefaultMQProducer producer, String topic, int size, int rate, int warmUp) throws Exception {
        long begin = System.nanoTime();
        countsFrom = begin + warmUp * 1_000_000_000L / rate;
        for (long i = 0; i < warmUp + nanos.length(); i++) {
            long due = begin + i * 1_000_000_000L / rate;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            producer.send(message(topic, size, due), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                }

                @Override
                public void onException(Throwable e) {
                    failed.incrementAndGet();
                    failure.compareAndSet(UNCONSUMED, e.toString());
                }
            });
        }
    }

    private void await() throws InterruptedException {
        long deadline = System.currentTimeMillis() + ARRIVE_WITHIN_S * 1000;
        while (arrived.get() < nanos.length() && System.currentTimeMillis() < deadline) {
            Thread.sleep(5);
        }
    }

    private Map<String, Object> line() {
        int count = Math.min(arrived.get(), nanos.length());
        if (count == 0) {
            throw new IllegalStateException("nothing arrived");
        }
        long[] sorted = new long[count];
        for (int i = 0; i < count; i++) {
            sorted[i] = nanos.get(i);
        }
        Arrays.sort(sorted);
        return Map.of("mode", "latency", "messages", count, "p50Micros", sorted[count / 2] / 1e3,
            "p99Micros", sorted[(int) (count * 0.99)] / 1e3, "failed", failed.get() + nanos.length() - count,
            "failure", failure.get());
    }
}
