package org.gantrymq.interop.client;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.admin.RollbackStats;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.common.AdminToolResult;

/** Administrative requests to all brokers at once, and older forms of other requests. */
@SuppressWarnings("deprecation") // what people still use, deprecated or not
final class ToolCases {
    private static final long TIMEOUT_MS = 10_000;

    private ToolCases() {
    }

    static void add(Cases cases) {
        cases.add("tool-topic-at-once", ToolCases::topic);
        cases.add("tool-group-at-once", ToolCases::group);
        cases.add("tool-nothing-at-once", ToolCases::nothing);
        cases.add("tool-offset-at-once", ToolCases::offset);
        cases.add("tool-create-topic", ToolCases::createTopic);
        cases.add("tool-offset-by-boundary", ToolCases::boundaries);
        cases.add("tool-old-reset", ToolCases::oldReset);
        cases.add("tool-request-mode", ToolCases::requestMode);
    }

    private static String text(Scene scene, AdminToolResult<?> result) {
        return result.isSuccess() + " " + result.getCode() + " " + scene.plain(String.valueOf(result.getErrorMsg()));
    }

    private static void topic(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 0), "m", 3);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.await("what was sent", () -> admin.maxOffset(scene.queue(topic, 0)) == 3);
        var stats = admin.examineTopicStatsConcurrent(topic);
        scene.fact("stats", text(scene, stats));
        Map<String, Object> offsets = new TreeMap<>();
        stats.getData().getOffsetTable().forEach((queue, one) ->
            offsets.put(String.valueOf(queue.getQueueId()), one.getMinOffset() + " to " + one.getMaxOffset()));
        scene.fact("offsets", offsets);
        var deleted = admin.deleteTopicInBrokerConcurrent(Set.of(scene.site.broker), topic);
        scene.fact("deleted", text(scene, deleted));
        scene.fact("at", deleted.getData().getSuccessList().size() + " not " + deleted.getData().getFailureList().size());
    }

    private static void group(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String group = scene.name("group");
        Inbox inbox = new Inbox();
        scene.push(group, topic, inbox);
        String id = scene.send(scene.queue(topic, 0), "m").getOffsetMsgId();
        inbox.await(1);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.awaitOffset(() -> admin.examineConsumeStats(scene.site.broker, group, topic, TIMEOUT_MS)
            .computeTotalDiff() == 0);
        var stats = admin.examineConsumeStatsConcurrent(group, topic);
        scene.fact("stats", text(scene, stats) + " " + stats.getData().computeTotalDiff());
        var topics = admin.queryTopicsByConsumerConcurrent(group);
        scene.fact("topics", text(scene, topics) + " " + topics.getData().getTopicList().contains(topic));
        var spans = admin.queryConsumeTimeSpanConcurrent(topic, group);
        scene.fact("spans", text(scene, spans) + " " + spans.getData().size());
        MessageExt message = admin.viewMessage(topic, id);
        scene.fact("track", admin.messageTrackDetailConcurrent(message).stream()
            .map(one -> scene.plain(one.getConsumerGroup()) + " " + one.getTrackType()).toList());
    }

    private static void nothing(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.site.admin;
        String topic = scene.topic("one", 1);
        scene.fact("stats of a missing topic", text(scene, admin.examineTopicStatsConcurrent(scene.name("nowhere"))));
        scene.fact("stats of nobody", text(scene, admin.examineConsumeStatsConcurrent(scene.name("nobody"), topic)));
        scene.fact("topics of nobody", text(scene, admin.queryTopicsByConsumerConcurrent(scene.name("nobody"))));
        scene.fact("spans of nobody", text(scene, admin.queryConsumeTimeSpanConcurrent(topic, scene.name("nobody"))));
    }

    private static void offset(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String group = scene.group("group", 3);
        MessageQueue queue = scene.queue(topic, 0);
        scene.fill(queue, "m", 4);
        DefaultMQAdminExt admin = scene.site.admin;
        admin.updateConsumeOffset(scene.site.broker, group, queue, 4);
        var reset = admin.resetOffsetNewConcurrent(group, topic, 0);
        scene.fact("reset", text(scene, reset));
        scene.fact("at", reset.getData().getSuccessList().size() + " not " + reset.getData().getFailureList().size());
        scene.fact("then", admin.examineConsumeStats(scene.site.broker, group, topic, TIMEOUT_MS).computeTotalDiff());
    }

    private static void createTopic(Scene scene) throws Exception {
        String topic = scene.name("one");
        DefaultMQAdminExt admin = scene.site.admin;
        admin.createTopic("TBW102", topic, 3, Map.of());
        scene.awaitRoute(topic);
        scene.fact("queues", admin.examineTopicConfig(scene.site.broker, topic).getReadQueueNums());
        scene.site.producer.createTopic("TBW102", scene.name("two"), 2, Map.of());
        scene.awaitRoute(scene.name("two"));
        scene.fact("a producer's", admin.examineTopicConfig(scene.site.broker, scene.name("two")).getWriteQueueNums());
        scene.refused("without a key", () -> {
            admin.createTopic(scene.name("nowhere"), scene.name("three"), 3, Map.of());
            return null;
        });
        scene.fact("clusters", admin.getClusterList(topic).stream().toList());
    }

    private static void boundaries(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        scene.fill(queue, "m", 2);
        Thread.sleep(20);
        long between = System.currentTimeMillis();
        Thread.sleep(20);
        scene.fill(queue, "n", 2);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.await("what was sent", () -> admin.maxOffset(queue) == 4);
        scene.fact("lower", admin.searchLowerBoundaryOffset(queue, between));
        scene.fact("upper", admin.searchUpperBoundaryOffset(queue, between));
    }

    private static void oldReset(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        String group = scene.group("group", 3);
        for (int id = 0; id < 2; id++) {
            scene.fill(scene.queue(topic, id), "m", 3);
            scene.site.admin.updateConsumeOffset(scene.site.broker, group, scene.queue(topic, id), 3);
        }
        DefaultMQAdminExt admin = scene.site.admin;
        scene.await("what was sent", () -> admin.maxOffset(scene.queue(topic, 1)) == 3);
        scene.fact("old", admin.resetOffsetByTimestampOld(group, topic, 0, true).stream().map(ToolCases::text).sorted().toList());
        scene.fact("behind", admin.examineConsumeStats(scene.site.broker, group, topic, TIMEOUT_MS).computeTotalDiff());
        scene.refused("new", () -> {
            admin.resetOffsetNew(group, topic, System.currentTimeMillis() + 60_000);
            return null;
        });
        scene.fact("then", admin.examineConsumeStats(scene.site.broker, group, topic, TIMEOUT_MS).computeTotalDiff());
    }

    private static String text(RollbackStats one) {
        return one.getQueueId() + ": " + one.getBrokerOffset() + " " + one.getConsumerOffset() + " " + one.getRollbackOffset();
    }

    private static void requestMode(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        String group = scene.group("group", 3);
        scene.refused("pull", () -> {
            scene.site.admin.setMessageRequestMode(scene.site.broker, topic, group, MessageRequestMode.PULL, 0, TIMEOUT_MS);
            return null;
        });
        for (String what : List.of("a topic", "a group")) {
            scene.refused("without " + what, () -> {
                scene.site.admin.setMessageRequestMode(scene.site.broker, what.equals("a topic") ? scene.name("nowhere") : topic,
                    what.equals("a group") ? scene.name("nobody") : group, MessageRequestMode.PULL, 0, TIMEOUT_MS);
                return null;
            });
        }
        scene.refused("retry topic", () -> {
            scene.site.admin.setMessageRequestMode(scene.site.broker, "%RETRY%" + group, group, MessageRequestMode.PULL, 0,
                TIMEOUT_MS);
            return null;
        });
    }
}
