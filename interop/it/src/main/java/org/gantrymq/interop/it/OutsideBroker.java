package org.gantrymq.interop.it;

import java.nio.file.Path;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A broker that runs outside, as a BrokerController that is never started: RocketMQ's tests ask one for its address, and set
 * its configuration. A setting of POP or of recalls goes to the broker as UPDATE_BROKER_CONFIG.
 */
public final class OutsideBroker {
    private OutsideBroker() {
    }

    public static BrokerController at(String address, String name, String namesrv) {
        int colon = address.lastIndexOf(':');
        BrokerConfig config = new ForwardedConfig(address, namesrv);
        config.setBrokerIP1(address.substring(0, colon));
        config.setBrokerName(name);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Integer.parseInt(address.substring(colon + 1)));
        MessageStoreConfig store = new ForwardedStoreConfig(address, namesrv);
        store.setStorePathRootDir(Path.of(System.getProperty("java.io.tmpdir"), "outside-" + name).toString());
        return new BrokerController(config, server, new NettyClientConfig(), store);
    }

    private static final class ForwardedConfig extends BrokerConfig {
        private final String address;
        private final String namesrv;

        ForwardedConfig(String address, String namesrv) {
            this.address = address;
            this.namesrv = namesrv;
        }

        @Override
        public void setEnablePopBufferMerge(boolean value) {
            super.setEnablePopBufferMerge(value);
            forward("enablePopBufferMerge", value);
        }

        @Override
        public void setUseServerSideResetOffset(boolean value) {
            super.setUseServerSideResetOffset(value);
            forward("useServerSideResetOffset", value);
        }

        @Override
        public void setPopFromRetryProbabilityForPriority(int value) {
            super.setPopFromRetryProbabilityForPriority(value);
            forward("popFromRetryProbabilityForPriority", value);
        }

        @Override
        public void setUseSeparateRetryQueue(boolean value) {
            super.setUseSeparateRetryQueue(value);
            forward("useSeparateRetryQueue", value);
        }

        @Override
        public void setPriorityOrderAsc(boolean value) {
            super.setPriorityOrderAsc(value);
            forward("priorityOrderAsc", value);
        }

        private void forward(String key, Object value) {
            OutsideBroker.forward(address, namesrv, key, value);
        }
    }

    private static final class ForwardedStoreConfig extends MessageStoreConfig {
        private final String address;
        private final String namesrv;

        ForwardedStoreConfig(String address, String namesrv) {
            this.address = address;
            this.namesrv = namesrv;
        }

        @Override
        public void setAppendTopicForTimerDeleteKey(boolean value) {
            super.setAppendTopicForTimerDeleteKey(value);
            OutsideBroker.forward(address, namesrv, "appendTopicForTimerDeleteKey", value);
        }
    }

    private static void forward(String address, String namesrv, String key, Object value) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName(key + System.nanoTime());
        try {
            admin.start();
            Properties properties = new Properties();
            properties.setProperty(key, String.valueOf(value));
            admin.updateBrokerConfig(address, properties);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        } finally {
            admin.shutdown();
        }
    }
}
