package org.gantrymq.interop.client;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Administration of topics: create, read, delete. */
final class TopicAdminCases {
    private static final long TIMEOUT_MS = 10_000;

    private TopicAdminCases() {
    }

    static void add(Cases cases) {
        cases.add("topic-altered", TopicAdminCases::altered);
        cases.add("topic-attributes", TopicAdminCases::attributes);
        cases.add("topic-refused", TopicAdminCases::refused);
        cases.add("topic-list-made", TopicAdminCases::list);
        cases.add("topic-deleted", TopicAdminCases::deleted);
        cases.add("topic-stats", TopicAdminCases::stats);
        cases.add("topic-tables", TopicAdminCases::tables);
        cases.add("topic-unused-cleaned", TopicAdminCases::cleaned);
        cases.addAlone("topic-order-configuration", TopicAdminCases::order);
    }

    static void permit(Scene scene, String topic, int perm) throws Exception {
        TopicConfig config = scene.site.admin.examineTopicConfig(scene.site.broker, topic);
        config.setPerm(perm);
        scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, config);
    }

    static void delete(Scene scene, String topic) throws Exception {
        scene.site.admin.deleteTopicInBroker(Set.of(scene.site.broker), topic);
        scene.site.admin.deleteTopicInNameServer(Set.of(scene.site.namesrv), topic);
    }

    /**
     * Creates the retry topic, which the group's first consumer would create. Tools find the brokers of a group by it.
     */
    static void retryTopic(Scene scene, String group) throws Exception {
        scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, new TopicConfig("%RETRY%" + group, 1, 1));
        scene.awaitRoute("%RETRY%" + group);
    }

    private static Map<String, Object> text(Scene scene, TopicConfig config) {
        Map<String, Object> said = new TreeMap<>();
        said.put("name", scene.plain(config.getTopicName()));
        said.put("read", config.getReadQueueNums());
        said.put("write", config.getWriteQueueNums());
        said.put("perm", config.getPerm());
        said.put("filter", config.getTopicFilterType().name());
        said.put("sysFlag", config.getTopicSysFlag());
        said.put("order", config.isOrder());
        said.put("attributes", new TreeMap<>(config.getAttributes()));
        return said;
    }

    private static TopicConfig config(Scene scene, String topic) throws Exception {
        return scene.site.admin.examineTopicConfig(scene.site.broker, topic);
    }

    private static void altered(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fact("made", text(scene, config(scene, topic)));
        TopicConfig other = new TopicConfig(topic, 5, 3, 6);
        other.setOrder(true);
        other.setTopicSysFlag(2);
        scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, other);
        scene.fact("altered", text(scene, config(scene, topic)));
        scene.await("its route", () -> scene.site.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getReadQueueNums() == 5);
        scene.fact("route", RouteCases.route(scene, topic));
        scene.refused("missing", () -> config(scene, scene.name("nowhere")));
    }

    private static void attributes(Scene scene) throws Exception {
        TopicConfig config = new TopicConfig(null, 1, 1);
        config.setAttributes(Map.of("+message.type", "FIFO", "+queue.type", "SimpleCQ"));
        String topic = scene.topic("one", config);
        scene.fact("made", text(scene, config(scene, topic)));
        for (Map<String, String> change : List.of(Map.of("+message.type", "DELAY"), Map.of("-message.type", ""),
            Map.of("+message.type", "NONSENSE"), Map.of("+queue.type", "BatchCQ"), Map.of("+no.such", "1"),
            Map.of("message.type", "FIFO"), Map.of("+cleanup.policy", "COMPACTION"))) {
            TopicConfig changed = new TopicConfig(topic, 1, 1);
            changed.setAttributes(change);
            scene.refused(change.toString(), () -> {
                scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, changed);
                return null;
            });
        }
        scene.fact("in the end", text(scene, config(scene, topic)));
    }

    private static void refused(Scene scene) {
        for (String name : List.of("a b", "x".repeat(128), "TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_anything",
            "RMQ_SYS_TRACE_TOPIC", "ümlaut", "a.b")) {
            scene.refused(name, () -> {
                scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, new TopicConfig(name, 1, 1));
                return null;
            });
        }
        for (String name : List.of("TBW102", "SELF_TEST_TOPIC", " ")) {
            scene.refused("delete " + name, () -> {
                scene.site.admin.deleteTopicInBroker(Set.of(scene.site.broker), name);
                return null;
            });
        }
        scene.refused("delete what is not there", () -> {
            scene.site.admin.deleteTopicInBroker(Set.of(scene.site.broker), scene.name("nowhere"));
            return null;
        });
    }

    private static void list(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.site.admin;
        String one = scene.name("one");
        String two = scene.name("two");
        admin.createAndUpdateTopicConfigList(scene.site.broker, List.of(new TopicConfig(one, 1, 1), new TopicConfig(two, 2, 2)));
        scene.awaitRoute(one);
        scene.awaitRoute(two);
        scene.fact("one", RouteCases.route(scene, one));
        scene.fact("two", RouteCases.route(scene, two));
        scene.refused("one of two", () -> {
            admin.createAndUpdateTopicConfigList(scene.site.broker,
                List.of(new TopicConfig(scene.name("three"), 1, 1), new TopicConfig("a b", 2, 2)));
            return null;
        });
        scene.refused("then none", () -> config(scene, scene.name("three")));
    }

    private static void deleted(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 3);
        scene.read(scene.queue(topic, 0), 3);
        delete(scene, topic);
        scene.refused("configuration", () -> config(scene, topic));
        scene.refused("statistics", () -> scene.site.admin.examineTopicStats(scene.site.broker, topic));
        scene.refused("route", () -> scene.site.admin.examineTopicRouteInfo(topic));
        scene.fact("listed", scene.site.admin.fetchAllTopicList().getTopicList().contains(topic));
    }

    private static void stats(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 0), "m", 3);
        long before = System.currentTimeMillis();
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 0)) == 3);
        TopicStatsTable stats = scene.site.admin.examineTopicStats(topic);
        Map<String, Object> said = new TreeMap<>();
        stats.getOffsetTable().forEach((queue, offset) -> said.put(String.valueOf(queue.getQueueId()), offsets(offset, before)));
        scene.fact("queues", said);
    }

    private static String offsets(TopicOffset offset, long before) {
        long last = offset.getLastUpdateTimestamp();
        String when = last == 0 ? "never" : Math.abs(before - last) < 60_000 ? "now" : String.valueOf(last);
        return offset.getMinOffset() + "-" + offset.getMaxOffset() + " " + when;
    }

    private static void tables(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.fact("all", admin.getAllTopicConfig(scene.site.broker, TIMEOUT_MS).getTopicConfigTable().containsKey(topic));
        scene.fact("user", admin.getUserTopicConfig(scene.site.broker, false, TIMEOUT_MS).getTopicConfigTable().containsKey(topic));
        scene.fact("system among the user's", admin.getUserTopicConfig(scene.site.broker, false, TIMEOUT_MS)
            .getTopicConfigTable().containsKey("TBW102"));
        scene.fact("system", admin.getAllTopicConfig(scene.site.broker, TIMEOUT_MS).getTopicConfigTable().values().stream()
            .filter(one -> isSystem(one.getTopicName()))
            .map(one -> text(scene, one)).sorted((a, b) -> a.get("name").toString().compareTo(b.get("name").toString())).toList());
        scene.fact("cluster", admin.fetchTopicsByCLuster(scene.site.cluster).getTopicList().contains(topic));
        scene.fact("name server", admin.fetchAllTopicList().getTopicList().contains(topic));
    }

    private static boolean isSystem(String topic) {
        return Set.of("TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "DefaultCluster", "broker-a",
            "DefaultCluster_REPLY_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster",
            "rmq_sys_SYNC_BROKER_MEMBER_broker-a").contains(topic);
    }

    private static void cleaned(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 2);
        scene.fact("by address", scene.site.admin.cleanUnusedTopicByAddr(scene.site.broker));
        scene.fact("by cluster", scene.site.admin.cleanUnusedTopic(scene.site.cluster));
        scene.fact("still there", scene.read(scene.queue(topic, 0), 2).stream().map(Inbox::body).toList());
        scene.fact("queues by address", scene.site.admin.cleanExpiredConsumerQueueByAddr(scene.site.broker));
        scene.fact("queues by cluster", scene.site.admin.cleanExpiredConsumerQueue(scene.site.cluster));
        scene.fact("log by address", scene.site.admin.deleteExpiredCommitLogByAddr(scene.site.broker));
        scene.fact("log by cluster", scene.site.admin.deleteExpiredCommitLog(scene.site.cluster));
        scene.fact("and still there", scene.read(scene.queue(topic, 0), 2).stream().map(Inbox::body).toList());
    }

    private static void order(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.site.admin.createOrUpdateOrderConf(topic, scene.site.brokerName + ":2", false);
        scene.fact("route", String.valueOf(scene.site.admin.examineTopicRouteInfo(topic).getOrderTopicConf()));
        scene.site.admin.deleteKvConfig("ORDER_TOPIC_CONFIG", topic);
        scene.fact("then", String.valueOf(scene.site.admin.examineTopicRouteInfo(topic).getOrderTopicConf()));
    }
}
