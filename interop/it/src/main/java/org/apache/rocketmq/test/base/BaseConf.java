package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.MQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPushConsumer;
import org.apache.rocketmq.client.producer.MQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.MQAdminExt;
import org.gantrymq.interop.it.OutsideBroker;

/**
 * The base class of RocketMQ's integration tests, under its own name and with its own members, but for brokers that run
 * outside: the system property {@code it.namesrv} is the address of their name server. It stands before RocketMQ's on the
 * class path. Its broker controllers know addresses, and set settings of POP and of recalls at the brokers; they have no stores.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("it.namesrv");
    protected static final String CLUSTER_NAME;
    protected static final String BROKER1_NAME;
    protected static final String BROKER2_NAME;
    protected static final String BROKER3_NAME;
    protected static final BrokerController brokerController1;
    protected static final BrokerController brokerController2;
    protected static final BrokerController brokerController3;
    // The compiler has written these into the tests: they are not ours to choose.
    protected static final int BROKER_NUM = 3;
    protected static final int WAIT_TIME = 5;
    protected static final int CONSUME_TIME = 2 * 60 * 1000;
    protected static final int QUEUE_NUMBERS = 8;

    protected static List<Object> mqClients = new ArrayList<>();
    protected static boolean debug = false;

    static {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        ClusterInfo cluster = awaitBrokers(NAMESRV_ADDR);
        CLUSTER_NAME = cluster.getClusterAddrTable().keySet().iterator().next();
        List<String> brokers = new ArrayList<>(new TreeSet<>(cluster.getBrokerAddrTable().keySet()));
        BROKER1_NAME = brokers.get(0);
        BROKER2_NAME = brokers.get(1 % brokers.size());
        BROKER3_NAME = brokers.get(2 % brokers.size());
        brokerController1 = outside(cluster, BROKER1_NAME);
        brokerController2 = outside(cluster, BROKER2_NAME);
        brokerController3 = outside(cluster, BROKER3_NAME);
        IntegrationTestBase.initMQAdmin(NAMESRV_ADDR);
    }

    private static BrokerController outside(ClusterInfo cluster, String name) {
        return OutsideBroker.at(cluster.getBrokerAddrTable().get(name).getBrokerAddrs().get(0L), name, NAMESRV_ADDR);
    }

    /** As many brokers as {@code it.brokers} says, or three, are waited for. */
    private static ClusterInfo awaitBrokers(String namesrv) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        int wanted = Integer.getInteger("it.brokers", BROKER_NUM);
        while (true) {
            ClusterInfo cluster = MQAdminTestUtils.getCluster(namesrv);
            if (cluster != null && cluster.getBrokerAddrTable().size() >= wanted) {
                return cluster;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("no " + wanted + " brokers at " + namesrv);
            }
            pause(100);
        }
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    public static void waitBrokerRegistered(String nsAddr, String clusterName, int expectedBrokerNum) {
        awaitBrokers(nsAddr);
    }

    public boolean awaitDispatchMs(long timeMs) {
        pause(Math.min(timeMs, 1000)); // the dispatch of a broker outside is not to be seen
        return true;
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopic(TopicMessageType type) {
        return initTopicWithName(MQRandomUtils.getRandomTopic(), type);
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicWithName(String topic, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, type);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String sample) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample);
    }

    public static String initTopicOnSampleTopicBroker(String sample, TopicMessageType type) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample, type);
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sample) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sample, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, type);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        MQAdminTestUtils.createSub(NAMESRV_ADDR, CLUSTER_NAME, config);
        return config.getGroupName();
    }

    public static DefaultMQAdminExt getAdmin(String nsAddr) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3000);
        admin.setNamesrvAddr(nsAddr);
        admin.setPollNameServerInterval(100);
        return kept(admin);
    }

    public static RMQNormalProducer getProducer(String nsAddr, String topic) {
        return getProducer(nsAddr, topic, false);
    }

    public static RMQNormalProducer getProducer(String nsAddr, String topic, boolean useTLS) {
        return talking(new RMQNormalProducer(nsAddr, topic, useTLS));
    }

    public static RMQNormalProducer getProducer(String nsAddr, String topic, String group, String instance) {
        return talking(new RMQNormalProducer(nsAddr, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
        String nsAddr, String topic, TransactionListener listener) {
        return talking(new RMQTransactionalProducer(nsAddr, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String nsAddr, String topic) {
        return talking(new RMQAsyncSendProducer(nsAddr, topic));
    }

    public static RMQNormalConsumer getConsumer(
        String nsAddr, String topic, String expression, AbstractListener listener) {
        return getConsumer(nsAddr, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String nsAddr, String topic, String expression, AbstractListener listener, boolean useTLS) {
        return getConsumer(nsAddr, initConsumerGroup(), topic, expression, listener, useTLS);
    }

    public static RMQNormalConsumer getConsumer(
        String nsAddr, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(nsAddr, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String nsAddr, String group, String topic, String expression, AbstractListener listener, boolean useTLS) {
        RMQNormalConsumer consumer =
            ConsumerFactory.getRMQNormalConsumer(nsAddr, group, topic, expression, listener, useTLS);
        if (debug) {
            consumer.setDebug();
        }
        return kept(consumer);
    }

    public static Set<String> getBrokers() {
        return new HashSet<>(List.of(BROKER1_NAME, BROKER2_NAME, BROKER3_NAME));
    }

    public static void shutdown() {
        List<Object> clients = List.copyOf(mqClients);
        mqClients.clear();
        shutdown(clients);
    }

    public static void shutdown(List<Object> clients) {
        clients.forEach(client -> ForkJoinPool.commonPool().execute(() -> end(client)));
    }

    private static void end(Object client) {
        if (client instanceof AbstractMQProducer producer) {
            producer.shutdown();
        } else if (client instanceof AbstractMQConsumer consumer) {
            consumer.shutdown();
        } else if (client instanceof MQAdminExt admin) {
            admin.shutdown();
        } else if (client instanceof MQProducer producer) {
            producer.shutdown();
        } else if (client instanceof MQPullConsumer consumer) {
            consumer.shutdown();
        } else if (client instanceof MQPushConsumer consumer) {
            consumer.shutdown();
        }
    }

    private static <P extends AbstractMQProducer> P talking(P producer) {
        if (debug) {
            producer.setDebug();
        }
        return kept(producer);
    }

    private static <C> C kept(C client) {
        mqClients.add(client);
        return client;
    }
}
