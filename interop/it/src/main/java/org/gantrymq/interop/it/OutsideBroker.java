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
 * its configuration. A setting of POP goes to the broker as UPDATE_BROKER_CONFIG.
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
        MessageStoreConfig store = new MessageStoreConfig();
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

        private void forward(String key, boolean value) {
            DefaultMQAdminExt admin = new DefaultMQAdminExt();
            admin.setNamesrvAddr(namesrv);
            admin.setInstanceName(key + System.nanoTime());
            try {
                admin.start();
                Properties properties = new Properties();
                properties.setProperty(key, Boolean.toString(value));
                admin.updateBrokerConfig(address, properties);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            } finally {
                admin.shutdown();
            }
        }
    }
}
