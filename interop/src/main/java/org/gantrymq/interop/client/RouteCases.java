package org.gantrymq.interop.client;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/** Routes: the queues of a topic for each kind of client, and how a topic is created. */
final class RouteCases {
    private static final List<String> SYSTEM_TOPICS = List.of("TBW102", "SELF_TEST_TOPIC", "BenchmarkTest",
        "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster", "DefaultCluster_REPLY_TOPIC",
        "RMQ_SYS_TRACE_TOPIC");

    private RouteCases() {
    }

    static void add(Cases cases) {
        cases.add("route-missing", RouteCases::missing);
        cases.add("route-created", RouteCases::created);
        cases.add("route-system-topics", RouteCases::systemTopics);
        cases.add("route-broker-and-cluster", RouteCases::brokerAndCluster);
        cases.add("auto-create", RouteCases::autoCreate);
        cases.add("auto-create-two-queues", RouteCases::autoCreateTwoQueues);
        cases.add("auto-create-many-queues", RouteCases::autoCreateManyQueues);
        cases.add("auto-create-without-template", RouteCases::withoutTemplate);
        cases.add("publish-queues", RouteCases::publishQueues);
        cases.add("publish-queues-missing", RouteCases::publishQueuesMissing);
    }

    static Map<String, Object> route(Scene scene, String topic) throws Exception {
        TopicRouteData route = scene.site.admin.examineTopicRouteInfo(topic);
        Map<String, Object> said = new TreeMap<>();
        for (QueueData queues : route.getQueueDatas()) {
            said.put(queues.getBrokerName(), Map.of("read", queues.getReadQueueNums(), "write",
                queues.getWriteQueueNums(), "perm", queues.getPerm(), "sysFlag", queues.getTopicSysFlag()));
        }
        said.put("order", String.valueOf(route.getOrderTopicConf()));
        for (BrokerData broker : route.getBrokerDatas()) {
            said.put("broker", Map.of("cluster", broker.getCluster(), "name", broker.getBrokerName(), "ids",
                broker.getBrokerAddrs().keySet().toString(), "acting", broker.isEnableActingMaster()));
        }
        return said;
    }

    private static void missing(Scene scene) {
        scene.refused("admin", () -> scene.site.admin.examineTopicRouteInfo(scene.name("nowhere")));
        scene.refused("stats", () -> scene.site.admin.examineTopicStats(scene.name("nowhere")));
        scene.refused("clusters", () -> scene.site.admin.getTopicClusterList(scene.name("nowhere")));
    }

    private static void created(Scene scene) throws Exception {
        TopicConfig config = new TopicConfig();
        config.setReadQueueNums(5);
        config.setWriteQueueNums(3);
        String topic = scene.topic("uneven", config);
        scene.fact("route", route(scene, topic));
        scene.fact("clusters", scene.site.admin.getTopicClusterList(topic).stream().sorted().toList());
        TopicConfig readOnly = new TopicConfig(null, 2, 2, 4);
        scene.fact("read-only", route(scene, scene.topic("read-only", readOnly)));
        TopicConfig unit = new TopicConfig(null, 1, 1);
        unit.setTopicSysFlag(1);
        scene.fact("unit", route(scene, scene.topic("unit", unit)));
    }

    private static void systemTopics(Scene scene) throws Exception {
        for (String topic : SYSTEM_TOPICS) {
            try {
                scene.fact(topic, route(scene, topic));
            } catch (MQClientException e) {
                scene.fact(topic, scene.refusal(e));
            }
        }
    }

    private static void brokerAndCluster(Scene scene) throws Exception {
        scene.fact("broker", route(scene, scene.site.brokerName));
        scene.fact("cluster", route(scene, scene.site.cluster));
    }

    private static void autoCreate(Scene scene) throws Exception {
        String topic = scene.name("new");
        scene.fact("status", SendCases.text(scene, scene.site.producer.send(new Message(topic, "hello".getBytes()))));
        scene.awaitRoute(topic);
        scene.fact("route", route(scene, topic));
        scene.fact("attributes", scene.site.admin.examineTopicConfig(scene.site.broker, topic).getAttributes());
    }

    private static void autoCreateTwoQueues(Scene scene) throws Exception {
        DefaultMQProducer producer = scene.producer("two", one -> one.setDefaultTopicQueueNums(2));
        String topic = scene.name("new");
        producer.send(new Message(topic, "hello".getBytes()));
        scene.awaitRoute(topic);
        scene.fact("route", route(scene, topic));
    }

    private static void autoCreateManyQueues(Scene scene) throws Exception {
        DefaultMQProducer producer = scene.producer("many", one -> one.setDefaultTopicQueueNums(100));
        String topic = scene.name("new");
        producer.send(new Message(topic, "hello".getBytes()));
        scene.awaitRoute(topic);
        scene.fact("route", route(scene, topic));
    }

    private static void withoutTemplate(Scene scene) throws Exception {
        DefaultMQProducer producer = scene.producer("own", one -> one.setCreateTopicKey(scene.name("template")));
        scene.refused("no template", () -> producer.send(new Message(scene.name("new"), "hello".getBytes())));
        TopicConfig template = new TopicConfig(null, 8, 8, 7); // 7: read, write, inherit
        scene.topic("template", template);
        producer.send(new Message(scene.name("newer"), "hello".getBytes()));
        scene.awaitRoute(scene.name("newer"));
        scene.fact("inherited", route(scene, scene.name("newer")));
        DefaultMQProducer barren = scene.producer("barren", one -> one.setCreateTopicKey(scene.name("childless")));
        scene.topic("childless", 2);
        scene.refused("no inheritance", () -> barren.send(new Message(scene.name("newest"), "hello".getBytes())));
    }

    private static void publishQueues(Scene scene) throws Exception {
        TopicConfig config = new TopicConfig();
        config.setReadQueueNums(4);
        config.setWriteQueueNums(2);
        String topic = scene.topic("uneven", config);
        Map<String, Object> queues = new LinkedHashMap<>();
        queues.put("publish", ids(scene.site.producer.fetchPublishMessageQueues(topic)));
        try (Reader reader = new Reader(scene)) {
            queues.put("subscribe", ids(List.copyOf(reader.consumer.fetchSubscribeMessageQueues(topic))));
        }
        scene.fact("queues", queues);
        String readOnly = scene.topic("read-only", new TopicConfig(null, 2, 2, 4));
        scene.refused("read-only", () -> scene.site.producer.fetchPublishMessageQueues(readOnly));
    }

    private static List<Integer> ids(List<MessageQueue> queues) {
        return queues.stream().map(MessageQueue::getQueueId).sorted().toList();
    }

    private static void publishQueuesMissing(Scene scene) throws Exception {
        scene.refused("publish", () -> scene.site.producer.fetchPublishMessageQueues(scene.name("nowhere")));
        try (Reader reader = new Reader(scene)) {
            scene.refused("subscribe", () -> reader.consumer.fetchSubscribeMessageQueues(scene.name("nowhere")));
        }
    }
}
