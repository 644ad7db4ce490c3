package org.gantrymq.interop.client;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.protocol.body.KVTable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Administration of the broker itself, and features that it does not have. */
final class BrokerAdminCases {
    private BrokerAdminCases() {
    }

    static void add(Cases cases) {
        cases.add("broker-runtime-info", BrokerAdminCases::runtimeInfo);
        cases.addAlone("broker-configuration", BrokerAdminCases::configuration);
        cases.add("broker-cluster", BrokerAdminCases::cluster);
        cases.add("broker-statistics", BrokerAdminCases::statistics);
        cases.add("broker-replicas", BrokerAdminCases::replicas);
    }

    private static void runtimeInfo(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 3);
        KVTable info = scene.site.admin.fetchBrokerRuntimeStats(scene.site.broker);
        Map<String, String> table = new TreeMap<>(info.getTable());
        scene.fact("keys", table.keySet().stream().filter(key -> !key.startsWith("commitLogDiskRatio_")
            && !key.startsWith("scheduleMessageOffset_")).toList());
        for (String key : List.of("brokerVersionDesc", "brokerActive", "startAcceptSendRequestTimeStamp",
            "sendThreadPoolQueueCapacity", "commitLogMinOffset")) {
            scene.fact(key, String.valueOf(table.get(key)));
        }
        for (String key : List.of("commitLogMaxOffset", "bootTimestamp", "msgPutTotalTodayNow", "putMessageTimesTotal",
            "putMessageSizeTotal", "earliestMessageTimeStamp")) {
            scene.fact(key + " is positive", Double.parseDouble(table.get(key)) > 0);
        }
        scene.fact("disk", Double.parseDouble(table.get("commitLogDiskRatio")) > 0
            && Double.parseDouble(table.get("commitLogDiskRatio")) <= 1);
        scene.fact("runtime", table.get("runtime").replaceAll("\\d+", "N"));
        scene.fact("capacity", table.get("commitLogDirCapacity").replaceAll("[\\d.]+ .iB", "SIZE"));
    }

    private static void configuration(Scene scene) throws Exception {
        DefaultMQAdminExt admin = scene.site.admin;
        Properties before = admin.getBrokerConfig(scene.site.broker);
        for (String key : List.of("brokerName", "brokerClusterName", "brokerId", "flushDiskType", "brokerPermission",
            "autoCreateTopicEnable", "defaultTopicQueueNums", "maxMessageSize", "deleteWhen")) {
            scene.fact(key, String.valueOf(before.getProperty(key)));
        }
        scene.site.configured("fileReservedTime", "33", () -> {
            scene.fact("reserved", admin.getBrokerConfig(scene.site.broker).getProperty("fileReservedTime"));
            return null;
        });
        scene.site.configured("defaultTopicQueueNums", "5", () -> {
            scene.fact("queues", admin.getBrokerConfig(scene.site.broker).getProperty("defaultTopicQueueNums"));
            return null;
        });
        Properties listed = new Properties();
        listed.setProperty("brokerConfigPath", "elsewhere");
        scene.refused("black list", () -> {
            admin.updateBrokerConfig(scene.site.broker, listed);
            return null;
        });
        Properties unknown = new Properties();
        unknown.setProperty("noSuchKey", "1");
        scene.refused("unknown key", () -> {
            admin.updateBrokerConfig(scene.site.broker, unknown);
            return null;
        });
        scene.fact("unknown", String.valueOf(admin.getBrokerConfig(scene.site.broker).getProperty("noSuchKey")));
    }

    private static void cluster(Scene scene) throws Exception {
        var info = scene.site.admin.examineBrokerClusterInfo();
        scene.fact("clusters", info.getClusterAddrTable().toString());
        scene.fact("brokers", info.getBrokerAddrTable().values().stream()
            .map(one -> one.getCluster() + " " + one.getBrokerName() + " " + one.getBrokerAddrs().keySet()).toList());
        scene.fact("servers", scene.site.admin.getNameServerAddressList().size());
    }

    private static void statistics(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.refused("nothing yet", () -> scene.site.admin.viewBrokerStatsData(scene.site.broker, "TOPIC_PUT_NUMS", topic));
        scene.fill(scene.queue(topic, 0), "m", 3);
        var found = scene.site.admin.viewBrokerStatsData(scene.site.broker, "TOPIC_PUT_NUMS", topic);
        scene.fact("there", found.getStatsMinute() != null && found.getStatsHour() != null && found.getStatsDay() != null);
        scene.refused("no such kind", () -> scene.site.admin.viewBrokerStatsData(scene.site.broker, "NO_SUCH", topic));
    }

    private static void replicas(Scene scene) throws Exception {
        var status = scene.site.admin.getBrokerHAStatus(scene.site.broker);
        scene.fact("master", status.isMaster());
        scene.fact("slaves", status.getInSyncSlaveNums() + " " + status.getHaConnectionInfo().size());
        scene.refused("epochs", () -> scene.site.admin.getBrokerEpochCache(scene.site.broker));
    }
}
