package org.gantrymq.interop.client;

import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The one broker and its name server, with a producer and an admin client that all cases share. */
public final class Site implements AutoCloseable {
    /**
     * Part of the names of every topic and group of this run, so that several runs against one broker do not conflict.
     */
    final String run = "_" + Long.toString(ThreadLocalRandom.current().nextLong(1L << 40), 36).toLowerCase(Locale.ROOT);
    final String namesrv;
    final DefaultMQAdminExt admin;
    final DefaultMQProducer producer;
    final String cluster;
    final String brokerName;
    final String broker;

    public Site(String namesrv) throws Exception {
        this.namesrv = namesrv;
        admin = new DefaultMQAdminExt("cases-admin" + run, 10_000);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("cases-admin" + run);
        admin.start();
        producer = new DefaultMQProducer("cases-producer" + run);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        ClusterInfo info = admin.examineBrokerClusterInfo();
        cluster = info.getClusterAddrTable().keySet().iterator().next();
        brokerName = info.getClusterAddrTable().get(cluster).iterator().next();
        BrokerData data = info.getBrokerAddrTable().get(brokerName);
        broker = data.getBrokerAddrs().get(0L);
    }

    /** Changes the broker's configuration for the duration of an attempt. */
    void configured(String key, String value, Attempt attempt) throws Exception {
        String before = admin.getBrokerConfig(broker).getProperty(key);
        configure(key, value);
        try {
            attempt.go();
        } finally {
            configure(key, before);
        }
    }

    private void configure(String key, String value) throws Exception {
        Properties one = new Properties();
        one.setProperty(key, value);
        admin.updateBrokerConfig(broker, one);
    }

    @Override
    public void close() {
        producer.shutdown();
        admin.shutdown();
    }
}
