package org.gantrymq.interop.client;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Administration of consumer groups and their clients. */
@SuppressWarnings("deprecation") // what people still use, deprecated or not
final class GroupAdminCases {
    private static final long TIMEOUT_MS = 10_000;

    private GroupAdminCases() {
    }

    static void add(Cases cases) {
        cases.add("group-altered", GroupAdminCases::altered);
        cases.add("group-list-made", GroupAdminCases::list);
        cases.add("group-deleted", GroupAdminCases::deleted);
        cases.add("group-refused", GroupAdminCases::refused);
        cases.add("group-disabled", GroupAdminCases::disabled);
        cases.add("group-forbidden-a-topic", GroupAdminCases::forbidden);
        cases.add("group-connections", GroupAdminCases::connections);
        cases.add("group-nobody-there", GroupAdminCases::nobody);
        cases.add("group-running-info", GroupAdminCases::runningInfo);
        cases.add("group-consume-directly", GroupAdminCases::directly);
        cases.add("group-consume-stats", GroupAdminCases::consumeStats);
        cases.add("group-who-consumes", GroupAdminCases::whoConsumes);
        cases.add("group-time-span", GroupAdminCases::timeSpan);
        cases.add("producer-connections", GroupAdminCases::producers);
    }

    private static Map<String, Object> text(Scene scene, SubscriptionGroupConfig group) {
        Map<String, Object> said = new TreeMap<>();
        said.put("name", scene.plain(group.getGroupName()));
        said.put("enabled", group.isConsumeEnable());
        said.put("from min", group.isConsumeFromMinEnable());
        said.put("broadcast", group.isConsumeBroadcastEnable());
        said.put("orderly", group.isConsumeMessageOrderly());
        said.put("retry queues", group.getRetryQueueNums());
        said.put("retries", group.getRetryMaxTimes());
        said.put("broker", group.getBrokerId());
        said.put("slowly", group.getWhichBrokerWhenConsumeSlowly());
        said.put("notify", group.isNotifyConsumerIdsChangedEnable());
        said.put("sysFlag", group.getGroupSysFlag());
        said.put("timeout", group.getConsumeTimeoutMinute());
        said.put("attributes", new TreeMap<>(group.getAttributes()));
        return said;
    }

    private static SubscriptionGroupConfig config(String name) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(name);
        return config;
    }

    private static void altered(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.site.admin;
        String group = scene.group("one", 3);
        scene.fact("made", text(scene, admin.examineSubscriptionGroupConfig(scene.site.broker, group)));
        SubscriptionGroupConfig other = config(group);
        other.setConsumeBroadcastEnable(false);
        other.setRetryQueueNums(4);
        other.setConsumeTimeoutMinute(7);
        other.setNotifyConsumerIdsChangedEnable(false);
        admin.createAndUpdateSubscriptionGroupConfig(scene.site.broker, other);
        scene.fact("altered", text(scene, admin.examineSubscriptionGroupConfig(scene.site.broker, group)));
        scene.fact("listed", admin.getAllSubscriptionGroup(scene.site.broker, TIMEOUT_MS).getSubscriptionGroupTable().containsKey(group));
        scene.fact("user's", admin.getUserSubscriptionGroup(scene.site.broker, TIMEOUT_MS).getSubscriptionGroupTable().containsKey(group));
        scene.fact("system", admin.getAllSubscriptionGroup(scene.site.broker, TIMEOUT_MS).getSubscriptionGroupTable().values()
            .stream().filter(one -> !one.getGroupName().contains(scene.site.run)
                && (one.getGroupName().startsWith("CID_") || one.getGroupName().endsWith("_CONSUMER")))
            .map(one -> one.getGroupName()).sorted().toList());
    }

    private static void list(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.site.admin;
        admin.createAndUpdateSubscriptionGroupConfigList(scene.site.broker,
            List.of(config(scene.name("one")), config(scene.name("two"))));
        scene.fact("one", text(scene, admin.examineSubscriptionGroupConfig(scene.site.broker, scene.name("one"))));
        scene.fact("two", text(scene, admin.examineSubscriptionGroupConfig(scene.site.broker, scene.name("two"))));
    }

    private static void deleted(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.site.admin;
        for (boolean withOffsets : new boolean[] {false, true}) {
            String topic = scene.topic("topic" + withOffsets, 1);
            scene.fill(scene.queue(topic, 0), "m", 3);
            String group = scene.group("group" + withOffsets, 3);
            admin.updateConsumeOffset(scene.site.broker, group, scene.queue(topic, 0), 2);
            TopicAdminCases.retryTopic(scene, group);
            admin.deleteSubscriptionGroup(scene.site.broker, group, withOffsets);
            // Whether the group is still listed proves nothing, because a request about a group creates it again.
            scene.fact("topics " + withOffsets, admin.queryTopicsByConsumer(group).getTopicList().stream().map(scene::plain).toList());
        }
    }

    private static void refused(Scene scene) throws Exception {
        for (String name : List.of("a b", "x".repeat(121), "ü")) {
            scene.refused(name, () -> {
                scene.site.admin.createAndUpdateSubscriptionGroupConfig(scene.site.broker, config(name));
                return null;
            });
        }
        String topic = scene.topic("one", 1);
        scene.refused("offset of a missing group", () -> {
            scene.site.admin.updateConsumeOffset(scene.site.broker, scene.name("none"), scene.queue(topic, 0), 2);
            return null;
        });
        String group = scene.group("some", 3);
        scene.refused("offset of a missing topic", () -> {
            scene.site.admin.updateConsumeOffset(scene.site.broker, group, scene.queue(scene.name("nowhere"), 0), 2);
            return null;
        });
    }

    private static void disabled(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 1);
        SubscriptionGroupConfig config = config(scene.name("group"));
        config.setConsumeEnable(false);
        scene.site.admin.createAndUpdateSubscriptionGroupConfig(scene.site.broker, config);
        try (Reader reader = new Reader(scene, scene.name("group"))) {
            scene.refused("pull", () -> reader.consumer.pull(scene.queue(topic, 0), "*", 0, 1));
            config.setConsumeEnable(true);
            scene.site.admin.createAndUpdateSubscriptionGroupConfig(scene.site.broker, config);
            scene.fact("then", reader.read(scene.queue(topic, 0), 1).stream().map(Inbox::body).toList());
        }
    }

    private static void forbidden(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String group = scene.group("group", 3);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.fact("at first", admin.updateAndGetGroupReadForbidden(scene.site.broker, group, topic, null).getReadable());
        scene.fact("forbidden", admin.updateAndGetGroupReadForbidden(scene.site.broker, group, topic, false).getReadable());
        scene.fact("asked", admin.updateAndGetGroupReadForbidden(scene.site.broker, group, topic, null).getReadable());
        scene.fact("allowed", admin.updateAndGetGroupReadForbidden(scene.site.broker, group, topic, true).getReadable());
    }

    private static DefaultMQPushConsumer consumer(Scene scene, String topic, Inbox inbox, int messages) throws Exception {
        scene.fill(scene.queue(topic, 0), "m", messages);
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"), topic, inbox);
        inbox.await(messages);
        return consumer;
    }

    private static void connections(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        consumer(scene, topic, new Inbox(), 1);
        ConsumerConnection found = scene.site.admin.examineConsumerConnectionInfo(scene.name("group"));
        scene.fact("connections", found.getConnectionSet().stream().map(one -> one.getLanguage() + " " + one.getVersion()).toList());
        scene.fact("type", found.getConsumeType().name());
        scene.fact("model", found.getMessageModel().name());
        scene.fact("from", found.getConsumeFromWhere().name());
        Map<String, Object> subscriptions = new TreeMap<>();
        found.getSubscriptionTable().forEach((name, one) ->
            subscriptions.put(scene.plain(name), one.getSubString() + " " + one.getExpressionType() + " " + one.getTagsSet()));
        scene.fact("subscriptions", subscriptions);
        var one = scene.site.admin.querySubscription(scene.name("group"), topic);
        scene.fact("subscription", scene.plain(one.getTopic()) + " " + one.getSubString());
        scene.refused("of another topic", () -> scene.site.admin.querySubscription(scene.name("group"), scene.name("nowhere")));
        String other = scene.topic("other", 1);
        scene.fact("not subscribed", String.valueOf(scene.site.admin.querySubscription(scene.name("group"), other)));
    }

    private static void nobody(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.refused("connections", () -> scene.site.admin.examineConsumerConnectionInfo(scene.name("none")));
        scene.refused("at the broker", () -> scene.site.admin.examineConsumerConnectionInfo(scene.name("none"), scene.site.broker));
        scene.refused("statistics", () -> scene.site.admin.examineConsumeStats(scene.name("none")));
        scene.refused("running", () -> scene.site.admin.getConsumerRunningInfo(scene.name("none"), "nobody", false));
        scene.refused("producers", () -> scene.site.admin.examineProducerConnectionInfo(scene.name("none"), topic));
    }

    private static void runningInfo(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = consumer(scene, topic, inbox, 3);
        String id = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        ConsumerRunningInfo info = scene.site.admin.getConsumerRunningInfo(scene.name("group"), id, true);
        scene.fact("subscriptions", info.getSubscriptionSet().stream().map(one -> scene.plain(one.getTopic())).sorted().toList());
        scene.fact("queues", info.getMqTable().keySet().stream().filter(one -> one.getTopic().equals(topic))
            .map(one -> scene.plain(one.getTopic()) + ":" + one.getQueueId()).sorted().toList());
        scene.fact("type", String.valueOf(info.getProperties().get("PROP_CONSUME_TYPE")));
        scene.fact("stack", info.getJstack() != null && info.getJstack().contains("ConsumeMessageThread"));
        scene.refused("another client", () -> scene.site.admin.getConsumerRunningInfo(scene.name("group"), "nobody", false));
        var status = scene.site.admin.getConsumeStatus(topic, scene.name("group"), "");
        scene.fact("status", status.values().stream().map(table -> table.entrySet().stream()
            .map(entry -> entry.getKey().getQueueId() + ":" + entry.getValue()).sorted().toList()).toList());
    }

    private static void directly(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = consumer(scene, topic, inbox, 1);
        String id = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        String message = scene.send(scene.queue(topic, 0), "again").getOffsetMsgId();
        inbox.await(2);
        var result = scene.site.admin.consumeMessageDirectly(scene.name("group"), id, topic, message);
        scene.fact("result", result.getConsumeResult().name());
        scene.fact("order", result.isOrder());
        inbox.await(3);
        scene.fact("bodies", inbox.inOrder());
    }

    private static void consumeStats(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 0), "m", 5);
        scene.fill(scene.queue(topic, 1), "n", 2);
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 1)) == 2);
        String group = scene.group("group", 3);
        scene.site.admin.updateConsumeOffset(scene.site.broker, group, scene.queue(topic, 0), 3);
        ConsumeStats stats = scene.site.admin.examineConsumeStats(scene.site.broker, group, topic, TIMEOUT_MS);
        Map<String, Object> said = new TreeMap<>();
        stats.getOffsetTable().forEach((queue, offset) -> said.put(String.valueOf(queue.getQueueId()),
            offset.getConsumerOffset() + " of " + offset.getBrokerOffset() + (offset.getLastTimestamp() > 0 ? " since" : " never")));
        scene.fact("queues", said);
        scene.fact("behind", stats.computeTotalDiff());
        scene.fact("in broker", scene.site.admin.fetchConsumeStatsInBroker(scene.site.broker, false, TIMEOUT_MS)
            .getConsumeStatsList().stream().filter(one -> one.containsKey(group)).map(one -> one.get(group).size()).toList());
    }

    private static void whoConsumes(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fact("nobody", scene.site.admin.queryTopicConsumeByWho(topic).getGroupList().size());
        consumer(scene, topic, new Inbox(), 1);
        scene.fact("one", scene.site.admin.queryTopicConsumeByWho(topic).getGroupList().stream().map(scene::plain).toList());
        scene.awaitOffset(() -> scene.site.admin.queryTopicsByConsumer(scene.name("group")).getTopicList().size() == 2);
        scene.fact("topics", scene.site.admin.queryTopicsByConsumer(scene.name("group")).getTopicList().stream()
            .map(scene::plain).sorted().toList());
    }

    private static void timeSpan(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        consumer(scene, topic, new Inbox(), 2);
        scene.awaitOffset(() -> scene.site.admin.examineConsumeStats(scene.site.broker, scene.name("group"), topic,
            TIMEOUT_MS).computeTotalDiff() == 0);
        long now = System.currentTimeMillis();
        scene.fact("spans", scene.site.admin.queryConsumeTimeSpan(topic, scene.name("group")).stream()
            .sorted((a, b) -> Integer.compare(a.getMessageQueue().getQueueId(), b.getMessageQueue().getQueueId()))
            .map(one -> when(one.getMinTimeStamp(), now) + " " + when(one.getMaxTimeStamp(), now) + " "
                + when(one.getConsumeTimeStamp(), now) + " late "
                + (one.getDelayTime() > 60_000 ? "for ever" : one.getDelayTime())).toList());
        scene.refused("missing", () -> scene.site.admin.queryConsumeTimeSpan(scene.name("nowhere"), scene.name("group")));
    }

    private static String when(long timestamp, long now) {
        return Math.abs(now - timestamp) < 60_000 ? "now" : String.valueOf(timestamp);
    }

    private static void producers(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        var producer = scene.producer("group", one -> { });
        producer.send(new Message(topic, SendCases.bytes("a")));
        scene.await("its heart-beat", () -> {
            producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
            return !scene.site.admin.examineProducerConnectionInfo(scene.name("group"), topic).getConnectionSet().isEmpty();
        });
        scene.fact("connections", scene.site.admin.examineProducerConnectionInfo(scene.name("group"), topic).getConnectionSet()
            .stream().map(one -> one.getLanguage() + " " + one.getVersion()).toList());
        scene.fact("listed", scene.site.admin.getAllProducerInfo(scene.site.broker).getData().get(scene.name("group")).size());
    }
}
