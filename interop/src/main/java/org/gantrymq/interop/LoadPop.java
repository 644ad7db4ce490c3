package org.gantrymq.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;

/**
 * Pops a topic that was filled before, and acknowledges every message by a request of its own, as the push consumer
 * does. The clients are threads of one group, each with a connection of its own: a client pops up to {@code --batch}
 * messages of any queue, acknowledges them, and pops again once all acknowledgements are answered. A message counts
 * when its acknowledgement is answered.
 */
final class LoadPop {
    private static final long TIMEOUT_MS = 30_000;
    private static final long INVISIBLE_MS = 60_000;
    private static final long POLL_MS = 1_000;

    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicReference<String> failure = new AtomicReference<>("");
    private final List<MQClientAPIExt> clients = new ArrayList<>();
    private final String group = "load-" + System.nanoTime();
    private final String topic;
    private final int batch;
    private final BrokerData broker;

    private LoadPop(Options options) throws Exception {
        topic = options.text("topic");
        batch = options.integer("batch", 32);
        for (int id = 0; id < options.integer("threads", 4); id++) {
            clients.add(Pop.client(options.text("namesrv")));
        }
        broker = clients.get(0).getTopicRouteInfoFromNameServer(topic, TIMEOUT_MS).getBrokerDatas().get(0);
    }

    static Map<String, Object> run(Options options) throws Exception {
        LoadPop load = new LoadPop(options);
        load.work(options.integer("warm-up", 0));
        long before = load.acknowledged.get();
        double cpu = BrokerCpu.micros(options);
        long begin = System.nanoTime();
        load.work(options.integer("seconds", 5));
        double seconds = (System.nanoTime() - begin) / 1e9;
        long messages = load.acknowledged.get() - before;
        cpu = BrokerCpu.micros(options) - cpu;
        load.clients.forEach(MQClientAPIExt::shutdown);
        if (messages == 0) {
            throw new IllegalStateException("no message was popped and acknowledged: " + load.failure.get());
        }
        return Map.of("mode", "pop", "messages", messages, "seconds", seconds, "rate", messages / seconds, "cpuMicros",
            cpu / messages, "failed", load.failed.get(), "failure", load.failure.get());
    }

    /** Lets all clients pop for a number of seconds. A topic that is empty before that is an error. */
    private void work(int seconds) throws InterruptedException {
        long end = System.currentTimeMillis() + seconds * 1000L;
        List<Thread> threads = new ArrayList<>();
        for (MQClientAPIExt client : clients) {
            Thread thread = new Thread(() -> pops(client, end), "load-pop");
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void pops(MQClientAPIExt client, long end) {
        while (System.currentTimeMillis() < end) {
            try {
                pop(client);
            } catch (Exception e) {
                failed(String.valueOf(e.getCause() == null ? e : e.getCause()));
            }
        }
    }

    private void failed(String why) {
        failed.incrementAndGet();
        failure.compareAndSet("", why);
    }

    private void pop(MQClientAPIExt client) throws Exception {
        String address = broker.selectBrokerAddr();
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setTopic(topic);
        header.setConsumerGroup(group);
        header.setQueueId(-1);
        header.setMaxMsgNums(batch);
        header.setInvisibleTime(INVISIBLE_MS);
        header.setPollTime(POLL_MS);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setOrder(false);
        PopResult found = client.popMessageAsync(address, broker.getBrokerName(), header, TIMEOUT_MS)
            .get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        if (found.getPopStatus() != PopStatus.FOUND) {
            if (found.getRestNum() == 0) {
                throw new IllegalStateException("the topic has no more messages: fill it with more");
            }
            return; // other clients have blocked the queues
        }
        List<CompletableFuture<AckResult>> acks = new ArrayList<>();
        for (MessageExt message : found.getMsgFoundList()) {
            String handle = message.getProperty(MessageConst.PROPERTY_POP_CK);
            acks.add(client.ackMessageAsync(address, Pop.ack(topic, group, handle), TIMEOUT_MS));
        }
        for (CompletableFuture<AckResult> ack : acks) {
            AckStatus status = ack.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus();
            if (status == AckStatus.OK) {
                acknowledged.incrementAndGet();
            } else {
                failed(status.name());
            }
        }
    }
}
