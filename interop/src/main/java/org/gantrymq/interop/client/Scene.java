package org.gantrymq.interop.client;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Collections;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** The environment of one case: its own names, its clients, which end with it, and the facts it has found. */
final class Scene {
    static final long PATIENCE_MS = 25_000;
    private static final int OFTEN_MS = 100;

    final Site site;
    private final String name;
    private final Deque<Runnable> ends = new ArrayDeque<>();
    private final List<DefaultMQPushConsumer> pushed = new CopyOnWriteArrayList<>();
    private final Map<String, Object> facts = Collections.synchronizedMap(new LinkedHashMap<>());

    Scene(Site site, String name) {
        this.site = site;
        this.name = name;
    }

    /** The name of a topic or group that no other case or run uses. */
    String name(String what) {
        return name + "-" + what + site.run;
    }

    void fact(String key, Object value) {
        facts.put(key, value instanceof String text ? plain(text) : value);
    }

    Map<String, Object> facts() {
        return new LinkedHashMap<>(facts);
    }

    /** How an attempt was refused, as a fact; "not refused" if it succeeded. */
    void refused(String key, Attempt attempt) {
        try {
            attempt.go();
            facts.put(key, "not refused");
        } catch (Exception e) {
            facts.put(key, refusal(e));
        }
    }

    Map<String, Object> refusal(Throwable e) {
        Map<String, Object> said = new TreeMap<>();
        said.put("type", e.getClass().getSimpleName());
        if (e instanceof MQBrokerException broker) {
            said.put("code", broker.getResponseCode());
            said.put("remark", plain(broker.getErrorMessage()));
        } else if (e instanceof MQClientException client) {
            said.put("code", client.getResponseCode());
            said.put("remark", plain(client.getErrorMessage() == null ? client.getMessage() : client.getErrorMessage()));
            if (e.getCause() != null && e.getCause() != e) {
                said.put("cause", refusal(e.getCause()));
            }
        } else {
            said.put("remark", plain(String.valueOf(e.getMessage())));
        }
        return said;
    }

    /** A text without the parts that differ between runs: endings of names, addresses, ids, times and links. */
    String plain(String text) {
        return text.replace(site.run, "")
            .replaceAll("(?s)\\n?(For more information|See http).*", "")
            .replaceAll("\\d+\\.\\d+\\.\\d+\\.\\d+(:\\d+)?(@[0-9]+#[0-9]+)?", "HOST")
            .replaceAll("\\b[0-9A-F]{32}\\b", "ID")
            .replaceAll("java\\.lang\\.\\w+: (.*), org\\.apache\\S+\\(\\w+\\.java:\\d+\\)", "$1")
            .replaceAll("(cost|Cost|time):? ?\\[?\\d+\\]? ?ms", "TIME")
            .trim();
    }

    static String trace(Throwable failure) {
        StringWriter text = new StringWriter();
        failure.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    /** Repeats a question until the answer is true. An exception counts as false. */
    void await(String what, Callable<Boolean> question) throws Exception {
        await(what, PATIENCE_MS, question);
    }

    void await(String what, long withinMs, Callable<Boolean> question) throws Exception {
        long deadline = System.currentTimeMillis() + withinMs;
        Exception last = null;
        long pauseMs = 5;
        while (System.currentTimeMillis() < deadline) {
            try {
                if (question.call()) {
                    return;
                }
                last = null;
            } catch (MQBrokerException | MQClientException e) {
                last = e;
            }
            Thread.sleep(pauseMs);
            pauseMs = Math.min(2 * pauseMs, OFTEN_MS);
        }
        throw new AssertionError("in vain: " + what, last);
    }

    /** As {@code await}, while push consumers persist their offsets. Otherwise they first do so after ten seconds. */
    @SuppressWarnings("deprecation")
    void awaitOffset(Callable<Boolean> question) throws Exception {
        await("its offset", () -> {
            pushed.forEach(one -> one.getDefaultMQPushConsumerImpl().persistConsumerOffset());
            return question.call();
        });
    }

    /** Creates a topic of this case with a number of queues, and waits for its route. */
    String topic(String what, int queues) throws Exception {
        return topic(what, new TopicConfig(name(what), queues, queues));
    }

    String topic(String what, TopicConfig config) throws Exception {
        String topic = name(what);
        config.setTopicName(topic);
        site.admin.createAndUpdateTopicConfig(site.broker, config);
        awaitRoute(topic);
        return topic;
    }

    void awaitRoute(String topic) throws Exception {
        await("a route of " + topic, () -> !site.admin.examineTopicRouteInfo(topic).getBrokerDatas().isEmpty());
    }

    /** Creates a subscription group of this case with a maximum number of deliveries. */
    String group(String what, int retries) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(name(what));
        config.setRetryMaxTimes(retries);
        site.admin.createAndUpdateSubscriptionGroupConfig(site.broker, config);
        return name(what);
    }

    /** Sends numbered messages to one queue. Their bodies are the prefix and 0, 1, 2, … */
    void fill(MessageQueue queue, String prefix, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            send(queue, prefix + i);
        }
    }

    SendResult send(MessageQueue queue, String body) throws Exception {
        return send(queue, body, null);
    }

    SendResult send(MessageQueue queue, String body, String tag) throws Exception {
        return site.producer.send(new Message(queue.getTopic(), tag, body.getBytes(StandardCharsets.UTF_8)), queue);
    }

    MessageQueue queue(String topic, int id) {
        return new MessageQueue(topic, site.brokerName, id);
    }

    /** A producer of this case, in its own group. */
    DefaultMQProducer producer(String what, Consumer<DefaultMQProducer> setting) throws Exception {
        return producer(what, null, setting);
    }

    DefaultMQProducer producer(String what, RPCHook hook, Consumer<DefaultMQProducer> setting) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name(what), hook);
        producer.setNamesrvAddr(site.namesrv);
        producer.setSendMsgTimeout(10_000);
        setting.accept(producer);
        producer.start();
        atEnd(producer::shutdown);
        return producer;
    }

    /** A push consumer that begins at the first message. It is not started. */
    DefaultMQPushConsumer push(String group) {
        return push(group, null);
    }

    DefaultMQPushConsumer push(String group, RPCHook hook) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook);
        consumer.setNamesrvAddr(site.namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(OFTEN_MS);
        consumer.setPollNameServerInterval(200); // so that it finds its new retry topic in time
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        atEnd(consumer::shutdown);
        pushed.add(consumer);
        return consumer;
    }

    /** A started push consumer of one topic that puts its messages into the inbox. */
    DefaultMQPushConsumer push(String group, String topic, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = push(group);
        consumer.subscribe(topic, "*");
        inbox.listen(consumer);
        consumer.start();
        return consumer;
    }

    DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(site.namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommitIntervalMillis(1000);
        consumer.setPersistConsumerOffsetInterval(OFTEN_MS);
        consumer.setPullThreadNums(4);
        atEnd(consumer::shutdown);
        return consumer;
    }

    /** Every message of a queue, read by the old pull consumer. */
    List<MessageExt> read(MessageQueue queue, int count) throws Exception {
        try (Reader reader = new Reader(this)) {
            return reader.read(queue, count);
        }
    }

    void atEnd(Runnable end) {
        ends.push(end);
    }

    void close() {
        ends.forEach(Runnable::run);
        ends.clear();
    }
}
