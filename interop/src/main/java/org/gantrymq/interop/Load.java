package org.gantrymq.interop;

import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * The real client with all its might for so many seconds, in one of its ways (sync, async, oneway, batch, push), and
 * one line about it. What was
 * acknowledged goes into a file, one key for each message, as soon as it is: whoever kills the broker compares.
 */
final class Load implements Command {
    private static final int BATCH = 100;
    private static final int IN_FLIGHT = 512;

    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();

    @Override
    public String usage() {
        return "--namesrv ADDRESS --topic NAME --mode WAY [--threads COUNT] [--seconds COUNT]"
            + " [--warm-up COUNT] [--size BYTES] [--count COUNT] [--acks FILE]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        if ("push".equals(options.text("mode"))) {
            out.line(consume(options));
            return 0;
        }
        DefaultMQProducer producer = new DefaultMQProducer("load-" + System.nanoTime());
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try (BufferedWriter acks = options.has("acks") ? Files.newBufferedWriter(Path.of(options.text("acks"))) : null) {
            long warmUp = options.integer("warm-up", 0) * 1000L;
            long end = System.currentTimeMillis() + warmUp + options.integer("seconds", 5) * 1000L;
            List<Thread> threads = new ArrayList<>();
            for (int id = 0; id < options.integer("threads", 4); id++) {
                Thread thread = new Thread(new Sender(producer, options, acks, end, id), "load-" + id);
                threads.add(thread);
                thread.start();
            }
            Thread.sleep(warmUp);
            long before = acknowledged.get();
            long begin = System.nanoTime();
            for (Thread thread : threads) {
                thread.join();
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            out.line(Map.of("mode", options.text("mode"), "messages", acknowledged.get() - before, "seconds", seconds,
                "rate", (acknowledged.get() - before) / seconds, "failed", failed.get()));
        }
        producer.shutdown();
        return 0;
    }

    private final class Sender implements Runnable {
        private final DefaultMQProducer producer;
        private final String topic;
        private final String mode;
        private final byte[] body;
        private final BufferedWriter acks;
        private final long end;
        private final String prefix;
        private final Semaphore inFlight = new Semaphore(IN_FLIGHT);
        private long next;

        Sender(DefaultMQProducer producer, Options options, BufferedWriter acks, long end, int id) {
            this.producer = producer;
            this.topic = options.text("topic");
            this.mode = options.text("mode");
            this.body = new byte[options.integer("size", 1024)];
            this.acks = acks;
            this.end = end;
            this.prefix = "t" + id + "-";
        }

        @Override
        public void run() {
            while (System.currentTimeMillis() < end) {
                try {
                    send();
                } catch (Exception e) {
                    failed.incrementAndGet();
                    pause();
                }
            }
            inFlight.acquireUninterruptibly(IN_FLIGHT);
        }

        private void pause() {
            try {
                Thread.sleep(1);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        private Message message() {
            Message message = new Message(topic, "", acks == null ? "" : prefix + next, body);
            next++;
            return message;
        }

        private void send() throws Exception {
            switch (mode) {
                case "sync" -> {
                    Message message = message();
                    note(producer.send(message).getSendStatus(), List.of(message));
                }
                case "batch" -> {
                    List<Message> batch = new ArrayList<>();
                    for (int i = 0; i < BATCH; i++) {
                        batch.add(message());
                    }
                    note(producer.send(batch).getSendStatus(), batch);
                }
                case "oneway" -> {
                    producer.sendOneway(message());
                    acknowledged.incrementAndGet();
                }
                case "async" -> sendAsync(message());
                default -> throw new IllegalArgumentException(mode);
            }
        }

        private void sendAsync(Message message) throws Exception {
            inFlight.acquire();
            try {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        note(result.getSendStatus(), List.of(message));
                        inFlight.release();
                    }

                    @Override
                    public void onException(Throwable e) {
                        failed.incrementAndGet();
                        inFlight.release();
                    }
                });
            } catch (Exception e) {
                inFlight.release();
                throw e;
            }
        }

        private void note(SendStatus status, List<Message> messages) {
            if (status != SendStatus.SEND_OK) {
                failed.incrementAndGet();
                return;
            }
            acknowledged.addAndGet(messages.size());
            if (acks == null) {
                return;
            }
            synchronized (acks) {
                try {
                    for (Message one : messages) {
                        acks.write(one.getKeys() + "\n");
                    }
                    acks.flush();
                } catch (java.io.IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
            }
        }
    }

    private static Map<String, Object> consume(Options options) throws Exception {
        AtomicLong got = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
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
        return Map.of("mode", "push", "messages", got.get(), "seconds", seconds, "rate", got.get() / seconds, "failed", 0);
    }
}
