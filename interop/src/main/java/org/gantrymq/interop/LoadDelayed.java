package org.gantrymq.interop;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
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
 * Measures how late delayed messages are while plain messages keep the broker busy. The real producer sends plain
 * messages at a fixed rate, and after every tenth a message with a delay level (1 s, 5 s, 10 s in turn) and one with
 * a due time (1 to 10 s ahead, in steps of 7 ms). The real push consumer in the same process reads the delayed ones.
 * The lateness counts from the due time, for a level from its delay after the send, to the listener.
 */
final class LoadDelayed {
    private static final long ARRIVE_WITHIN_MS = 30_000;
    private static final int[] LEVELS = {1, 2, 3};
    private static final long[] LEVEL_MS = {1_000, 5_000, 10_000};
    private static final long TIMER_FROM_MS = 1_000;
    private static final long TIMER_SPAN_MS = 9_000;
    private static final long TIMER_STEP_MS = 7;
    private static final int PLAIN_A_DELAYED = 10;
    private static final byte LEVEL = 0;
    private static final byte TIMER = 1;

    private final Map<Byte, ConcurrentLinkedQueue<Long>> late =
        Map.of(LEVEL, new ConcurrentLinkedQueue<>(), TIMER, new ConcurrentLinkedQueue<>());
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>("");
    private final DefaultMQProducer producer = new DefaultMQProducer("load-" + System.nanoTime());
    private final String topic;
    private final int size;

    private LoadDelayed(Options options) {
        topic = options.text("topic");
        size = Math.max(options.integer("size", 1024), Long.BYTES + 1);
        producer.setNamesrvAddr(options.text("namesrv"));
    }

    static Map<String, Object> run(Options options) throws Exception {
        LoadDelayed load = new LoadDelayed(options);
        load.producer.start();
        load.producer.send(new Message(load.topic + "-delayed", new byte[load.size])); // creates the topics
        load.producer.send(new Message(load.topic, new byte[load.size]));
        DefaultMQPushConsumer consumer = load.consumer(options.text("namesrv"));
        double cpu = BrokerCpu.micros(options);
        int rate = options.integer("rate", 1000);
        int plain = rate * options.integer("seconds", 5);
        load.send(rate, plain);
        load.await();
        cpu = BrokerCpu.micros(options) - cpu;
        load.producer.shutdown();
        consumer.shutdown();
        Map<String, Object> line = new TreeMap<>();
        load.add(line, "level", LEVEL);
        load.add(line, "timer", TIMER);
        line.put("mode", "delayed");
        line.put("messages", load.sent.get());
        line.put("cpuMicros", cpu / (plain + load.sent.get()));
        line.put("failed", load.failed.get() + load.sent.get() - load.arrived());
        line.put("failure", load.failure.get());
        return line;
    }

    private DefaultMQPushConsumer consumer(String namesrv) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic + "-delayed", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.currentTimeMillis();
            messages.forEach(message -> note(now, ByteBuffer.wrap(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private void note(long now, ByteBuffer body) {
        byte kind = body.get();
        long due = body.getLong();
        if (due != 0) {
            late.get(kind).add(now - due);
        }
    }

    private void send(int rate, int plain) throws Exception {
        long begin = System.nanoTime();
        for (int i = 0; i < plain; i++) {
            long due = begin + i * 1_000_000_000L / rate;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            send(new Message(topic, new byte[size]));
            if (i % PLAIN_A_DELAYED == 0) {
                sendDelayed(i / PLAIN_A_DELAYED);
            }
        }
    }

    private void sendDelayed(int number) throws Exception {
        int level = number % LEVELS.length;
        Message levelled = delayed(LEVEL, System.currentTimeMillis() + LEVEL_MS[level]);
        levelled.setDelayTimeLevel(LEVELS[level]);
        send(levelled);
        long due = System.currentTimeMillis() + TIMER_FROM_MS + number * TIMER_STEP_MS % TIMER_SPAN_MS;
        Message timed = delayed(TIMER, due);
        timed.setDeliverTimeMs(due);
        send(timed);
        sent.addAndGet(2);
    }

    private Message delayed(byte kind, long due) {
        return new Message(topic + "-delayed", ByteBuffer.allocate(size).put(kind).putLong(due).array());
    }

    private void send(Message message) throws Exception {
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
            }

            @Override
            public void onException(Throwable e) {
                failed.incrementAndGet();
                failure.compareAndSet("", e.toString());
            }
        });
    }

    private long arrived() {
        return late.values().stream().mapToLong(ConcurrentLinkedQueue::size).sum();
    }

    private void await() throws InterruptedException {
        long deadline = System.currentTimeMillis() + LEVEL_MS[LEVEL_MS.length - 1] + ARRIVE_WITHIN_MS;
        while (arrived() < sent.get() && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
    }

    /** The lateness in milliseconds of the messages of a kind; what is below 0 is early. */
    private void add(Map<String, Object> line, String name, byte kind) {
        long[] sorted = late.get(kind).stream().mapToLong(Long::longValue).sorted().toArray();
        if (sorted.length == 0) {
            throw new IllegalStateException("no message of the kind " + name + " arrived");
        }
        line.put(name + "P50", sorted[sorted.length / 2]);
        line.put(name + "P99", sorted[(int) (sorted.length * 0.99)]);
        line.put(name + "Max", sorted[sorted.length - 1]);
        line.put(name + "Min", sorted[0]);
    }
}
