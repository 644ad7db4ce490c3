package org.gantrymq.interop.client;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;

/** Messages that are not stored: some are rejected by the client, some by the broker. */
final class RefusedSendCases {
    private RefusedSendCases() {
    }

    static void add(Cases cases) {
        cases.add("refused-by-client", RefusedSendCases::byClient);
        cases.add("refused-batch", RefusedSendCases::batch);
        cases.add("refused-queue-out-of-range", RefusedSendCases::queueOutOfRange);
        cases.add("refused-too-large", RefusedSendCases::tooLarge);
        cases.add("refused-long-properties", RefusedSendCases::longProperties);
        cases.add("refused-topic-names", RefusedSendCases::topicNames);
        cases.add("refused-missing-topic", RefusedSendCases::missingTopic);
        cases.add("refused-read-only-topic", RefusedSendCases::readOnlyTopic);
        cases.add("refused-async", RefusedSendCases::async);
        cases.add("refused-and-retried", RefusedSendCases::retried);
        cases.add("deleted-topic-comes-back", RefusedSendCases::deletedTopic);
        cases.addAlone("refused-without-auto-create", RefusedSendCases::withoutAutoCreate);
        cases.addAlone("refused-read-only-broker", RefusedSendCases::readOnlyBroker);
        cases.addAlone("refused-retry-topic", RefusedSendCases::retryTopic);
    }

    private static void byClient(Scene scene) throws Exception {
        DefaultMQProducer producer = scene.site.producer;
        scene.refused("empty body", () -> producer.send(new Message(scene.name("t"), new byte[0])));
        scene.refused("no body", () -> producer.send(new Message(scene.name("t"), null)));
        scene.refused("blank topic", () -> producer.send(new Message(" ", SendCases.bytes("a"))));
        scene.refused("space in topic", () -> producer.send(new Message("a b", SendCases.bytes("a"))));
        scene.refused("long topic", () -> producer.send(new Message("t".repeat(128), SendCases.bytes("a"))));
        scene.refused("system topic", () -> producer.send(new Message("SCHEDULE_TOPIC_XXXX", SendCases.bytes("a"))));
        scene.refused("large", () -> producer.send(new Message(scene.name("t"), new byte[(4 << 20) + 1])));
        scene.refused("other topic's queue", () ->
            producer.send(new Message(scene.name("t"), SendCases.bytes("a")), scene.queue(scene.name("u"), 0)));
    }

    private static void batch(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Message plain = new Message(topic, SendCases.bytes("a"));
        Message delayed = new Message(topic, SendCases.bytes("a"));
        delayed.setDelayTimeLevel(1);
        scene.refused("two topics", () ->
            scene.site.producer.send(List.of(plain, new Message(scene.name("two"), SendCases.bytes("a")))));
        scene.refused("delayed", () -> scene.site.producer.send(List.of(plain, delayed)));
        scene.refused("retry topic", () ->
            scene.site.producer.send(List.of(new Message("%RETRY%" + scene.name("g"), SendCases.bytes("a")))));
        DefaultMQProducer large = scene.producer("large", one -> one.setMaxMessageSize(32 << 20));
        List<Message> huge = List.of(new Message(topic, new byte[3 << 20]), new Message(topic, new byte[3 << 20]));
        scene.refused("too large together", () -> large.send(huge));
        scene.fact("end", scene.site.admin.maxOffset(scene.queue(topic, 0)));
    }

    private static void queueOutOfRange(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        scene.refused("beyond", () -> scene.send(scene.queue(topic, 2), "a"));
        scene.refused("far beyond", () -> scene.send(scene.queue(topic, 1_000_000), "a"));
        // The broker replaces a negative queue id.
        SendResult anywhere = changed(scene, "anywhere", header -> header.setE(-1)).send(new Message(topic, SendCases.bytes("a")));
        scene.fact("anywhere", anywhere.getSendStatus().name());
        scene.refused("other broker", () -> scene.site.producer.send(new Message(topic, SendCases.bytes("a")),
            new org.apache.rocketmq.common.message.MessageQueue(topic, "no-such-broker", 0)));
    }

    private static DefaultMQProducer changed(Scene scene, String what, Consumer<SendMessageRequestHeaderV2> change)
        throws Exception {
        return scene.producer(what, Hooks.sending(change), one -> one.setRetryTimesWhenSendFailed(0));
    }

    private static void tooLarge(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer large = scene.producer("large", one -> {
            one.setMaxMessageSize(32 << 20);
            one.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        });
        scene.refused("one byte over", () -> large.send(new Message(topic, new byte[(4 << 20) + 1])));
        scene.fact("the largest", large.send(new Message(topic, new byte[4 << 20])).getSendStatus().name());
        scene.await("the largest", () -> scene.site.admin.maxOffset(scene.queue(topic, 0)) > 0);
        scene.fact("end", scene.site.admin.maxOffset(scene.queue(topic, 0)));
    }

    private static void longProperties(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Message message = new Message(topic, SendCases.bytes("a"));
        message.putUserProperty("long", "x".repeat(40_000));
        scene.refused("40 kB", () -> scene.site.producer.send(message));
        Message shorter = new Message(topic, SendCases.bytes("a"));
        shorter.putUserProperty("long", "x".repeat(32_000));
        scene.fact("32 kB", scene.site.producer.send(shorter).getSendStatus().name());
        scene.fact("read", scene.read(scene.queue(topic, 0), 1).get(0).getProperty("long").length());
        Message batched = new Message(topic, SendCases.bytes("a"));
        batched.putUserProperty("long", "x".repeat(40_000));
        scene.refused("in a batch", () -> scene.site.producer.send(List.of(batched)));
    }

    private static void topicNames(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Message message = new Message(topic, SendCases.bytes("a"));
        scene.refused("illegal letters", () -> changed(scene, "p1", header -> header.setB("a b")).send(message));
        scene.refused("long", () -> changed(scene, "p2", header -> header.setB("t".repeat(128))).send(message));
        scene.refused("blank", () -> changed(scene, "p3", header -> header.setB("")).send(message));
        scene.refused("system", () -> changed(scene, "p4", header -> header.setB("SCHEDULE_TOPIC_XXXX")).send(message));
        scene.refused("template", () -> changed(scene, "p5", header -> header.setB("TBW102")).send(message));
    }

    private static void missingTopic(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = changed(scene, "lost", header -> {
            header.setB(scene.name("nowhere"));
            header.setC(scene.name("no-template"));
        });
        scene.refused("send", () -> producer.send(new Message(topic, SendCases.bytes("a"))));
        scene.refused("batch", () -> producer.send(List.of(new Message(topic, SendCases.bytes("a")))));
    }

    private static void readOnlyTopic(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = scene.producer("slow", one -> one.setPollNameServerInterval(600_000));
        producer.send(new Message(topic, SendCases.bytes("a")));
        scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, new TopicConfig(topic, 1, 1, 4));
        scene.refused("send", () -> producer.send(new Message(topic, SendCases.bytes("b"))));
        scene.refused("batch", () -> producer.send(List.of(new Message(topic, SendCases.bytes("b")))));
        scene.fact("read", scene.read(scene.queue(topic, 0), 1).size());
        scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, new TopicConfig(topic, 1, 1, 2));
        producer.send(new Message(topic, SendCases.bytes("c")));
        try (Reader reader = new Reader(scene)) {
            scene.refused("pull", () -> reader.consumer.pull(scene.queue(topic, 0), "*", 0, 1));
        }
    }

    private static void async(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        CompletableFuture<SendResult> future = new CompletableFuture<>();
        scene.site.producer.send(new Message(topic, SendCases.bytes("a")), scene.queue(topic, 9), SendCases.callback(future));
        scene.refused("async", () -> {
            try {
                return future.get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS);
            } catch (java.util.concurrent.ExecutionException e) {
                throw (Exception) e.getCause();
            }
        });
    }

    private static void retried(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        int[] tries = new int[1];
        DefaultMQProducer producer = scene.producer("stubborn", Hooks.sending(header -> {
            if (tries[0]++ < 2) {
                header.setB(scene.name("nowhere"));
                header.setC(scene.name("no-template"));
            }
        }), one -> one.setRetryTimesWhenSendFailed(2));
        scene.fact("status", producer.send(new Message(topic, SendCases.bytes("a"))).getSendStatus().name());
        scene.fact("tries", tries[0]);
    }

    private static void deletedTopic(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fact("before", SendCases.text(scene, scene.send(scene.queue(topic, 0), "a")));
        TopicAdminCases.delete(scene, topic);
        scene.await("no route", () -> {
            try {
                return scene.site.admin.examineTopicRouteInfo(topic) == null;
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return e.getResponseCode() == 17;
            }
        });
        scene.fact("after", SendCases.text(scene, scene.send(scene.queue(topic, 0), "b")));
        scene.awaitRoute(topic);
        scene.fact("route", RouteCases.route(scene, topic));
    }

    private static void withoutAutoCreate(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = changed(scene, "lost", header -> header.setB(scene.name("nowhere")));
        scene.site.configured("autoCreateTopicEnable", "false", () -> {
            scene.refused("send", () -> producer.send(new Message(topic, SendCases.bytes("a"))));
            return null;
        });
    }

    private static void readOnlyBroker(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.send(scene.queue(topic, 0), "a");
        try (Reader reader = new Reader(scene)) {
            scene.site.configured("brokerPermission", "4", () -> {
                scene.refused("send", () -> scene.send(scene.queue(topic, 0), "a"));
                scene.fact("pull", reader.consumer.pull(scene.queue(topic, 0), "*", 0, 1).getPullStatus().name());
                return null;
            });
            scene.site.configured("brokerPermission", "2", () -> {
                scene.fact("send", scene.send(scene.queue(topic, 0), "a").getSendStatus().name());
                scene.refused("pull", () -> reader.consumer.pull(scene.queue(topic, 0), "*", 0, 1));
                return null;
            });
        }
    }

    private static void retryTopic(Scene scene) throws Exception {
        // The group of a retry topic must exist. The first request about it creates it.
        String group = scene.group("known", 2);
        Message message = new Message("%RETRY%" + group, SendCases.bytes("a"));
        // Without a template the topic gets one queue, as a retry topic. (TBW102 would give four queues, but after
        // autoCreateTopicEnable was false, topics of a real broker do not inherit from TBW102 any more.)
        DefaultMQProducer producer = scene.producer("own", one -> one.setCreateTopicKey(scene.name("template")));
        scene.fact("known group", producer.send(message, scene.queue(message.getTopic(), 0)).getSendStatus().name());
        scene.awaitRoute("%RETRY%" + group);
        scene.fact("route", RouteCases.route(scene, "%RETRY%" + group));
        Message other = new Message("%RETRY%" + scene.name("unknown"), SendCases.bytes("a"));
        scene.refused("unknown group", () -> scene.site.producer.send(other, scene.queue(other.getTopic(), 0)));
    }
}
