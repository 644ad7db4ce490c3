package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Runs the real name server and broker on 127.0.0.1 until stdin ends or SIGTERM arrives. Prints one line {@code
 * {"ready":true,"namesrv":…,"broker":…}} when the broker has a route.
 */
final class Cluster implements Command {
    private static final String HOST = "127.0.0.1";
    private static final long READY_WITHIN_MS = 60_000;
    private static final long PAUSE_MS = 100;

    @Override
    public String usage() {
        return "[--store DIR] [--set KEY=VALUE]... [--auth KEY=VALUE]... [--namesrv-port PORT] [--listen-port PORT]"
            + " [--namesrv ADDRESS] [--no-broker]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        NamesrvController namesrv = options.has("namesrv") ? null : namesrv(options.integer("namesrv-port", 0));
        String address = namesrv == null ? options.text("namesrv") : HOST + ":" + port(namesrv);
        BrokerController broker = options.has("no-broker") ? null : broker(options, address);
        if (broker != null) {
            awaitRoute(broker);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("ready", true);
        line.put("namesrv", address);
        line.put("broker", broker == null ? null : broker.getBrokerAddr());
        out.line(line);
        out.flush();
        awaitEnd();
        if (broker != null) {
            broker.shutdown();
        }
        if (namesrv != null) {
            namesrv.shutdown();
        }
        return 0;
    }

    private static NamesrvController namesrv(int port) throws Exception {
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress(HOST);
        server.setListenPort(port);
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(System.getProperty("user.home") + "/kvConfig.json");
        NamesrvController controller = new NamesrvController(config, server);
        started(controller.initialize(), "name server");
        controller.start();
        return controller;
    }

    private static int port(NamesrvController controller) {
        return controller.getNettyServerConfig().getListenPort();
    }

    private static BrokerController broker(Options options, String namesrv) throws Exception {
        Settings settings = new Settings(options.text("store"), List.of());
        settings.broker.setBrokerIP1(HOST);
        settings.broker.setBrokerIP2(HOST);
        settings.broker.setBrokerName("broker-a");
        settings.broker.setNamesrvAddr(namesrv);
        settings.broker.setRocketmqHome(System.getProperty("user.home"));
        settings.assign(options.all("set"));
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress(HOST);
        server.setListenPort(options.integer("listen-port", 0));
        BrokerController controller = new BrokerController(
            settings.broker, server, new NettyClientConfig(), settings.store, auth(options, settings));
        started(controller.initialize(), "broker");
        controller.start();
        return controller;
    }

    private static AuthConfig auth(Options options, Settings settings) {
        AuthConfig auth = new AuthConfig();
        auth.setConfigName(settings.broker.getBrokerName());
        auth.setClusterName(settings.broker.getBrokerClusterName());
        auth.setAuthConfigPath(settings.store.getStorePathRootDir() + "/config");
        for (String assignment : options.all("auth")) {
            String[] parts = assignment.split("=", 2);
            Properties one = new Properties();
            one.setProperty(parts[0], parts[1]);
            MixAll.properties2Object(one, auth);
        }
        return auth;
    }

    private static void started(boolean initialized, String what) {
        if (!initialized) {
            throw new IllegalStateException("the " + what + " does not start");
        }
    }

    /**
     * Waits until the broker has a route. A broker that has no connection to the name server at its start registers
     * only after ten seconds, so this registers it again.
     */
    private static void awaitRoute(BrokerController broker) throws Exception {
        String name = broker.getBrokerConfig().getBrokerName();
        Exception last = null;
        for (long end = System.currentTimeMillis() + READY_WITHIN_MS; System.currentTimeMillis() < end;) {
            try {
                if (!broker.getBrokerOuterAPI().getTopicRouteInfoFromNameServer(name, 3000).getBrokerDatas().isEmpty()) {
                    return;
                }
            } catch (MQBrokerException | RemotingException e) {
                last = e; // the broker is not registered yet, or has no connection
            }
            Thread.sleep(PAUSE_MS);
            broker.registerBrokerAll(true, false, true);
        }
        throw new IllegalStateException("the broker has no route", last);
    }

    private static void awaitEnd() throws InterruptedException {
        CountDownLatch end = new CountDownLatch(1);
        CountDownLatch never = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            end.countDown();
            try {
                never.await(); // Main halts the process after the shutdown
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        Thread stdin = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException e) {
                System.err.println("interop: stdin: " + e);
            }
            end.countDown();
        });
        stdin.setDaemon(true);
        stdin.start();
        end.await();
    }
}
