package org.gantrymq.interop.grpc;

import com.alibaba.fastjson2.JSON;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Runs the SDK at full speed for a number of seconds, after a warm-up, and prints one line with the rate and the CPU time
 * a message of the server's process. In mode send, threads share one producer. In mode receive, each thread has a
 * SimpleConsumer with a connection of its own: it receives up to {@code --batch} messages, acknowledges each by a
 * request of its own, and receives again once all are answered. A message counts when its acknowledgement is answered.
 * In mode join, a consumer group receives once, so that its offsets are those of the end of the topic.
 */
public final class Load {
    private static final Duration INVISIBLE = Duration.ofSeconds(60);
    private static final Duration AWAIT = Duration.ofSeconds(5);
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, String> options;
    private final AtomicLong done = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>("");

    private Load(Map<String, String> options) {
        this.options = options;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        out.println(JSON.toJSONString(new Load(options).run()));
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> run() throws Exception {
        List<Work> works = new ArrayList<>();
        switch (options.get("--mode")) {
            case "send" -> {
                Producer producer = producer();
                for (int i = 0; i < number("--threads"); i++) {
                    works.add(() -> send(producer));
                }
            }
            case "receive" -> {
                for (int i = 0; i < number("--threads"); i++) {
                    SimpleConsumer consumer = consumer();
                    works.add(() -> receive(consumer));
                }
            }
            case "join" -> {
                consumer().receive(1, INVISIBLE);
                return Map.of("mode", "join", "messages", 0, "failed", 0);
            }
            default -> throw new IllegalArgumentException(options.get("--mode"));
        }
        long most = Long.parseLong(options.getOrDefault("--count", String.valueOf(Long.MAX_VALUE)));
        work(works, number("--warm-up"), most);
        long before = done.get();
        double cpu = cpuMicros();
        long begin = System.nanoTime();
        work(works, number("--seconds"), most);
        double seconds = (System.nanoTime() - begin) / 1e9;
        long messages = done.get() - before;
        if (messages == 0) {
            throw new IllegalStateException("no message: " + failure.get());
        }
        return Map.of("mode", options.get("--mode"), "messages", messages, "seconds", seconds,
            "rate", messages / seconds, "cpuMicros", (cpuMicros() - cpu) / messages,
            "failed", failed.get(), "failure", failure.get());
    }

    /** Repeats each piece of work in a thread of its own, until the time is over or this many messages are done. */
    private void work(List<Work> works, int seconds, long most) throws InterruptedException {
        long end = System.currentTimeMillis() + seconds * 1000L;
        List<Thread> threads = new ArrayList<>();
        for (Work one : works) {
            Thread thread = new Thread(() -> {
                while (System.currentTimeMillis() < end && done.get() < most) {
                    try {
                        one.once();
                    } catch (Exception e) {
                        failed.incrementAndGet();
                        failure.compareAndSet("", String.valueOf(e));
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void send(Producer producer) throws Exception {
        byte[] body = new byte[number("--size")];
        producer.send(provider.newMessageBuilder().setTopic(options.get("--topic")).setBody(body).build());
        done.incrementAndGet();
    }

    private void receive(SimpleConsumer consumer) throws Exception {
        List<MessageView> messages = consumer.receive(number("--batch"), INVISIBLE);
        List<CompletableFuture<Void>> acks = new ArrayList<>();
        for (MessageView message : messages) {
            acks.add(consumer.ackAsync(message));
        }
        for (CompletableFuture<Void> ack : acks) {
            try {
                ack.orTimeout(TIMEOUT.toSeconds(), TimeUnit.SECONDS).join();
                done.incrementAndGet();
            } catch (CompletionException e) {
                failed.incrementAndGet();
                failure.compareAndSet("", String.valueOf(e.getCause()));
            }
        }
    }

    private Producer producer() throws Exception {
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration())
            .setTopics(options.get("--topic")).setMaxAttempts(1).build();
        return producer;
    }

    private SimpleConsumer consumer() throws Exception {
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration())
            .setConsumerGroup(options.get("--group")).setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Collections.singletonMap(options.get("--topic"), FilterExpression.SUB_ALL))
            .build();
        return consumer;
    }

    private ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder().setEndpoints(options.get("--endpoints")).setRequestTimeout(TIMEOUT)
            .enableSsl(false).build();
    }

    private int number(String name) {
        return Integer.parseInt(options.get(name));
    }

    /** The CPU time of the server's process since its start, user and system. */
    private double cpuMicros() {
        return ProcessHandle.of(Long.parseLong(options.get("--server-pid")))
            .flatMap(process -> process.info().totalCpuDuration())
            .map(Duration::toNanos).orElseThrow() / 1e3;
    }

    private interface Work {
        void once() throws Exception;
    }
}
