package org.gantrymq.interop;

import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Runs the real client at full speed for a number of seconds or messages, in one mode (sync, async, oneway, batch,
 * transaction, push, pop), or at a fixed rate (latency, delayed), and prints one line. The warm-up, in seconds, is the same
 * work before the measurement; for push it is a first consumer that reads everything. One-way messages, of which every
 * 256th is sent synchronously, and messages of transactions, which are committed at once, count when they are in their
 * queues; all others when they are acknowledged. With the broker's process id the line has its CPU time a message.
 *
 * <p>The keys of acknowledged messages are written to a file at once, so that a test that kills the broker can compare.
 */
final class Load implements Command {
    private static final int BATCH = 100;
    private static final int IN_FLIGHT = 512;
    private static final int ONE_WAY = 256;
    private static final long SETTLES_WITHIN_NANOS = 1_000_000_000;

    private final long made = System.nanoTime();
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>("");

    @Override
    public String usage() {
        return "--namesrv ADDRESS --topic NAME --mode WAY [--threads COUNT] [--seconds COUNT]"
            + " [--warm-up COUNT] [--size BYTES] [--count COUNT] [--rate COUNT] [--acks FILE]"
            + " [--batch COUNT] [--broker-pid PID] [--access-key NAME --secret-key SECRET]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        String mode = options.text("mode");
        if ("push".equals(mode)) {
            out.line(LoadPush.run(options));
            return 0;
        }
        if ("latency".equals(mode)) {
            out.line(LoadLatency.run(options));
            return 0;
        }
        if ("pop".equals(mode)) {
            out.line(LoadPop.run(options));
            return 0;
        }
        if ("delayed".equals(mode)) {
            out.line(LoadDelayed.run(options));
            return 0;
        }
        DefaultMQProducer producer = producer(mode, "load-" + System.nanoTime(), signing(options));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try (BufferedWriter acks = options.has("acks") ? Files.newBufferedWriter(Path.of(options.text("acks"))) : null) {
            Count start = isCountedInQueues(options) ? there(producer, options) : counted(producer, options, 0);
            long warm = work(producer, options, acks, options.integer("warm-up", 0));
            Count before = counted(producer, options, start.messages + warm);
            double cpu = BrokerCpu.micros(options);
            long begin = System.nanoTime();
            long sent = work(producer, options, acks, options.integer("seconds", 5));
            Count after = counted(producer, options, before.messages + sent);
            long messages = after.messages - before.messages;
            double seconds = (after.nanos - begin) / 1e9;
            cpu = (BrokerCpu.micros(options) - cpu) / Math.max(messages, 1);
            out.line(Map.of("mode", mode, "messages", messages, "seconds", seconds, "rate", messages / seconds,
                "cpuMicros", cpu, "failed", failed.get() + sent - messages, "failure", failure.get()));
        }
        producer.shutdown();
        return 0;
    }

    /**
     * Counts messages that were not stored. The line reports the reason of the first failure, and its time since the
     * start.
     */
    private void failed(long messages, Object why) {
        failed.addAndGet(messages);
        failure.compareAndSet("", (System.nanoTime() - made) / 1_000_000 + " ms: " + why);
    }

    /** Lets all threads send for a number of seconds. Returns how many messages they consider sent. */
    private long work(DefaultMQProducer producer, Options options, BufferedWriter acks, int seconds) throws Exception {
        long before = acknowledged.get();
        long end = System.currentTimeMillis() + seconds * 1000L;
        List<Thread> threads = new ArrayList<>();
        for (int id = 0; id < options.integer("threads", 4); id++) {
            Thread thread = new Thread(new Sender(producer, options, acks, end, id), "load-" + id);
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return acknowledged.get() - before;
    }

    private record Count(long messages, long nanos) {
    }

    private static boolean isCountedInQueues(Options options) {
        return List.of("oneway", "transaction").contains(options.text("mode"));
    }

    /** The hook that signs requests; null without credentials. */
    private static RPCHook signing(Options options) {
        return options.has("access-key")
            ? new AclClientRPCHook(new SessionCredentials(options.text("access-key"), options.text("secret-key"))) : null;
    }

    private static DefaultMQProducer producer(String mode, String group, RPCHook hook) {
        if (!"transaction".equals(mode)) {
            return new DefaultMQProducer(group, hook);
        }
        TransactionMQProducer producer = new TransactionMQProducer(group, hook);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        return producer;
    }

    /** The number of messages in the topic, which is created if it is missing. */
    private Count there(DefaultMQProducer producer, Options options) throws Exception {
        producer.send(new Message(options.text("topic"), new byte[1]));
        return counted(producer, options, Long.MAX_VALUE);
    }

    /**
     * The number of messages and the time at which it was reached. One-way messages and those of transactions are
     * counted in the broker's queues, until all are there or no more arrive.
     */
    private Count counted(DefaultMQProducer producer, Options options, long expected) throws Exception {
        Count count = new Count(acknowledged.get(), System.nanoTime());
        if (!isCountedInQueues(options)) {
            return count;
        }
        count = new Count(-1, System.nanoTime());
        while (count.messages < expected && System.nanoTime() - count.nanos < SETTLES_WITHIN_NANOS) {
            try {
                long stored = stored(producer, options.text("topic"));
                count = stored > count.messages ? new Count(stored, System.nanoTime()) : count;
            } catch (MQClientException e) {
                count = new Count(count.messages, System.nanoTime()); // the client's network thread is still busy
            }
            Thread.sleep(1);
        }
        return count;
    }

    @SuppressWarnings("deprecation") // maxOffset: no other way of a producer's to ask
    private static long stored(DefaultMQProducer producer, String topic) throws MQClientException {
        long stored = 0;
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            stored += producer.maxOffset(queue);
        }
        return stored;
    }

    private final class Sender implements Runnable {
        private final DefaultMQProducer producer;
        private final String topic;
        private final String mode;
        private final byte[] body;
        private final BufferedWriter acks;
        private final long end;
        private final long most;
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
            this.most = options.number("count", Long.MAX_VALUE);
            this.prefix = "t" + id + "-";
        }

        @Override
        public void run() {
            while (System.currentTimeMillis() < end && acknowledged.get() < most) {
                try {
                    send();
                } catch (Exception e) {
                    failed(mode.equals("batch") ? BATCH : 1, e);
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
                case "transaction" -> {
                    Message message = message();
                    note(producer.sendMessageInTransaction(message, null).getSendStatus(), List.of(message));
                }
                case "batch" -> {
                    List<Message> batch = new ArrayList<>();
                    for (int i = 0; i < BATCH; i++) {
                        batch.add(message());
                    }
                    note(producer.send(batch).getSendStatus(), batch);
                }
                case "oneway" -> {
                    Message message = message();
                    if (next % ONE_WAY == 0) { // without synchronous sends the client would queue more than it can send
                        note(producer.send(message).getSendStatus(), List.of(message));
                    } else {
                        producer.sendOneway(message);
                        acknowledged.incrementAndGet();
                    }
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
                        failed(1, e);
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
                failed(messages.size(), status);
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
}
