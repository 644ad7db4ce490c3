package org.gantrymq.interop.client;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Searches for messages by key, by id and by time, and the bounds of queues. */
@SuppressWarnings("deprecation") // what people still use, deprecated or not
final class QueryCases {
    private QueryCases() {
    }

    static void add(Cases cases) {
        cases.add("query-by-key", QueryCases::byKey);
        cases.add("query-several-keys", QueryCases::severalKeys);
        cases.add("query-at-most", QueryCases::atMost);
        cases.add("query-nothing", QueryCases::nothing);
        cases.add("query-by-unique-key", QueryCases::byUniqueKey);
        cases.add("query-of-a-batch", QueryCases::ofBatch);
        cases.add("view-by-offset-id", QueryCases::view);
        cases.add("view-missing", QueryCases::viewMissing);
        cases.add("query-a-queue", QueryCases::queue);
        cases.add("offsets-of-a-queue", QueryCases::ends);
        cases.add("offset-by-time", QueryCases::byTime);
        cases.add("message-track", QueryCases::track);
    }

    private static SendResult send(Scene scene, MessageQueue queue, String body, String keys) throws Exception {
        return scene.site.producer.send(new Message(queue.getTopic(), "tag", keys, SendCases.bytes(body)), queue);
    }

    private static List<String> found(Scene scene, String topic, String key, int most) throws Exception {
        long now = System.currentTimeMillis();
        QueryResult result = scene.site.admin.queryMessage(topic, key, most, now - 60_000, now + 60_000);
        return result.getMessageList().stream().map(Inbox::body).sorted().toList();
    }

    private static void byKey(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        send(scene, scene.queue(topic, 0), "a", "k1");
        send(scene, scene.queue(topic, 1), "b", "k1");
        send(scene, scene.queue(topic, 0), "c", "k2");
        scene.await("the index", () -> found(scene, topic, "k1", 32).size() == 2 && found(scene, topic, "k2", 32).size() == 1);
        scene.fact("k1", found(scene, topic, "k1", 32));
        scene.fact("k2", found(scene, topic, "k2", 32));
        long now = System.currentTimeMillis();
        MessageExt one = scene.site.admin.queryMessage(topic, "k2", 32, now - 60_000, now + 60_000).getMessageList().get(0);
        scene.fact("message", SendCases.text(scene, one));
        scene.refused("before it was sent", () -> scene.site.admin.queryMessage(topic, "k1", 32, now - 90_000, now - 60_000));
    }

    private static void severalKeys(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        send(scene, scene.queue(topic, 0), "a", "k1 k2 k3");
        for (String key : List.of("k1", "k2", "k3")) {
            scene.await(key, () -> found(scene, topic, key, 32).size() == 1);
        }
        scene.refused("all at once", () -> found(scene, topic, "k1 k2 k3", 32));
    }

    private static void atMost(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        for (int i = 0; i < 10; i++) {
            send(scene, scene.queue(topic, 0), "m" + i, "k");
        }
        scene.await("the index", () -> found(scene, topic, "k", 32).size() == 10);
        scene.fact("three", found(scene, topic, "k", 3));
        scene.fact("hundred", found(scene, topic, "k", 100).size());
    }

    private static void nothing(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        send(scene, scene.queue(topic, 0), "a", "k1");
        scene.refused("other key", () -> found(scene, topic, "k2", 32));
        scene.refused("other topic", () -> found(scene, scene.topic("two", 1), "k1", 32));
        scene.refused("missing topic", () -> found(scene, scene.name("nowhere"), "k1", 32));
    }

    private static void byUniqueKey(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        SendResult sent = send(scene, scene.queue(topic, 0), "a", "k1");
        DefaultMQAdminExt admin = scene.site.admin;
        scene.await("the index", () -> admin.queryMessage(scene.site.cluster, topic, sent.getMsgId()) != null);
        scene.fact("message", SendCases.text(scene, admin.queryMessage(scene.site.cluster, topic, sent.getMsgId())));
        scene.fact("viewed", SendCases.text(scene, admin.viewMessage(topic, sent.getMsgId())));
        scene.fact("result", admin.queryMessageByUniqKey(scene.site.cluster, topic, sent.getMsgId(), 32, 0, Long.MAX_VALUE)
            .getMessageList().size());
    }

    private static void ofBatch(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.site.producer.send(List.of(new Message(topic, "t", "b1", SendCases.bytes("a")),
            new Message(topic, "t", "b2", SendCases.bytes("b"))), scene.queue(topic, 0));
        scene.await("the index", () -> found(scene, topic, "b2", 32).size() == 1);
        scene.fact("b1", found(scene, topic, "b1", 32));
        scene.fact("b2", found(scene, topic, "b2", 32));
    }

    private static void view(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        SendResult sent = send(scene, scene.queue(topic, 0), "a", "k1");
        scene.fact("message", SendCases.text(scene, scene.site.admin.viewMessage(topic, sent.getOffsetMsgId())));
    }

    private static void viewMissing(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String id = send(scene, scene.queue(topic, 0), "a", "k1").getOffsetMsgId();
        scene.refused("beyond the log", () -> scene.site.admin.viewMessage(topic, id.substring(0, 16) + "00000FFFFFFFFFFF"));
        scene.refused("no id", () -> scene.site.admin.viewMessage(topic, "nonsense"));
    }

    private static void queue(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.send(scene.queue(topic, 0), "a", "red");
        scene.send(scene.queue(topic, 0), "b", "blue");
        scene.send(scene.queue(topic, 0), "c");
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 0)) == 3);
        var units = scene.site.admin.queryConsumeQueue(scene.site.broker, topic, 0, 0, 10, null);
        scene.fact("bounds", units.getMinQueueIndex() + "-" + units.getMaxQueueIndex());
        scene.fact("tags", units.getQueueData().stream().map(one -> one.getTagsCode()).toList());
        scene.fact("second", scene.site.admin.queryConsumeQueue(scene.site.broker, topic, 0, 1, 1, null).getQueueData().size());
        scene.refused("beyond", () -> scene.site.admin.queryConsumeQueue(scene.site.broker, topic, 0, 7, 1, null).getQueueData().size());
        scene.refused("missing", () -> scene.site.admin.queryConsumeQueue(scene.site.broker, scene.name("nowhere"), 0, 0, 1, null));
    }

    private static void ends(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        long before = System.currentTimeMillis();
        scene.fill(scene.queue(topic, 0), "m", 4);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.await("what was sent", () -> admin.maxOffset(scene.queue(topic, 0)) == 4);
        Map<String, Object> said = new TreeMap<>();
        for (int id = 0; id < 2; id++) {
            MessageQueue queue = scene.queue(topic, id);
            long earliest = admin.earliestMsgStoreTime(queue);
            said.put("queue " + id, admin.minOffset(queue) + "-" + admin.maxOffset(queue) + " since "
                + (earliest >= before - 1000 && earliest < before + 60_000 ? "now" : earliest));
        }
        scene.fact("offsets", said);
        scene.refused("missing", () -> admin.maxOffset(scene.queue(scene.name("nowhere"), 0)));
        scene.fact("a queue too many", admin.maxOffset(scene.queue(topic, 9)));
    }

    private static void byTime(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        long before = System.currentTimeMillis();
        scene.fill(queue, "m", 3);
        Thread.sleep(20);
        long between = System.currentTimeMillis();
        Thread.sleep(20);
        scene.fill(queue, "n", 3);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.await("what was sent", () -> admin.maxOffset(queue) == 6);
        scene.fact("before", admin.searchOffset(queue, before - 60_000));
        scene.fact("between", admin.searchOffset(queue, between));
        scene.fact("after", admin.searchOffset(queue, System.currentTimeMillis() + 60_000));
        scene.fact("empty", admin.searchOffset(scene.queue(scene.topic("two", 1), 0), before));
        long last = scene.read(queue, 6).get(5).getStoreTimestamp();
        scene.fact("the last", admin.searchOffset(queue, last) <= 5);
        var api = scene.site.producer.getDefaultMQProducerImpl().getMqClientFactory().getMQAdminImpl();
        for (BoundaryType type : BoundaryType.values()) {
            scene.fact(type.getName(), api.searchOffset(queue, between, type));
            scene.fact(type.getName() + ", after", api.searchOffset(queue, System.currentTimeMillis() + 60_000, type));
            scene.fact(type.getName() + ", before", api.searchOffset(queue, before - 60_000, type));
        }
    }

    private static void track(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        scene.push(scene.name("group"), topic, inbox);
        SendResult sent = send(scene, scene.queue(topic, 0), "a", "k1");
        inbox.await(1);
        scene.awaitOffset(() -> scene.site.admin.examineConsumeStats(scene.site.broker, scene.name("group"), topic, 5000)
            .computeTotalDiff() == 0);
        MessageExt message = scene.site.admin.viewMessage(topic, sent.getOffsetMsgId());
        scene.fact("track", scene.site.admin.messageTrackDetail(message).stream()
            .map(one -> scene.plain(one.getConsumerGroup()) + " " + one.getTrackType()).toList());
    }
}
