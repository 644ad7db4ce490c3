package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Sends mqadmin's requests to a name server that has one broker and the topics Gone1 and Gone2, through
 * DefaultMQAdminExt. Prints a line {@code {"ask":…,"answer":…}} for each; a refused request has the answer {@code
 * {"refused":…}}.
 */
final class NamesrvAdmin implements Command {
    private static final String NAMESPACE = "interop";

    private DefaultMQAdminExt admin;
    private String namesrv;
    private JsonLines out;

    @Override
    public String usage() {
        return "--namesrv ADDRESS";
    }

    @Override
    public int run(Options options, JsonLines lines) throws Exception {
        namesrv = options.text("namesrv");
        out = lines;
        admin = new DefaultMQAdminExt(5_000);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        ClusterInfo info = admin.examineBrokerClusterInfo();
        String cluster = info.getClusterAddrTable().keySet().iterator().next();
        String broker = info.getClusterAddrTable().get(cluster).iterator().next();
        topics(cluster, broker);
        values();
        settings();
        permissions(broker);
        deletion(cluster);
        admin.shutdown();
        return 0;
    }

    private void topics(String cluster, String broker) {
        ask("cluster info", () -> admin.examineBrokerClusterInfo());
        ask("all topics", () -> new TreeSet<>(admin.fetchAllTopicList().getTopicList()));
        ask("topics of the cluster", () -> new TreeSet<>(admin.fetchTopicsByCLuster(cluster).getTopicList()));
        ask("topics of no cluster", () -> new TreeSet<>(admin.fetchTopicsByCLuster("nowhere").getTopicList()));
        ask("route", () -> admin.examineTopicRouteInfo(broker));
        ask("no route", () -> admin.examineTopicRouteInfo("nowhere"));
        ask("clusters of a topic", () -> admin.getTopicClusterList("TBW102"));
    }

    private void values() {
        ask("no value", () -> admin.getKVConfig(NAMESPACE, "key"));
        ask("no namespace", () -> admin.getKVListByNamespace(NAMESPACE));
        ask("put", () -> {
            admin.createAndUpdateKvConfig(NAMESPACE, "key", "wert=ü; \"1\"");
            return admin.getKVConfig(NAMESPACE, "key");
        });
        ask("namespace", () -> admin.getKVListByNamespace(NAMESPACE).getTable());
        ask("delete", () -> {
            admin.deleteKvConfig(NAMESPACE, "key");
            return admin.getKVListByNamespace(NAMESPACE).getTable();
        });
        ask("deleted", () -> admin.getKVConfig(NAMESPACE, "key"));
        ask("order", () -> {
            admin.createOrUpdateOrderConf("Ordered", "broker-a:4", false);
            admin.createOrUpdateOrderConf("Ordered", "broker-b:2", false);
            return new TreeSet<>(List.of(admin.getKVConfig("ORDER_TOPIC_CONFIG", "Ordered").split(";")));
        });
    }

    private void settings() {
        ask("settings", this::shown);
        ask("change settings", () -> {
            Properties changed = new Properties();
            changed.setProperty("orderMessageEnable", "true");
            changed.setProperty("serverWorkerThreads", "5");
            changed.setProperty("nobodysKey", "1");
            admin.updateNameServerConfig(changed, List.of(namesrv));
            return shown();
        });
        ask("forbidden settings", () -> {
            Properties changed = new Properties();
            changed.setProperty("kvConfigPath", "elsewhere");
            admin.updateNameServerConfig(changed, List.of(namesrv));
            return "taken";
        });
    }

    /** The settings without the paths and the port of this process. */
    private Map<Object, Object> shown() throws Exception {
        Map<Object, Object> shown = new TreeMap<>(admin.getNameServerConfig(List.of(namesrv)).get(namesrv));
        Set.of("rocketmqHome", "kvConfigPath", "configStorePath", "listenPort").forEach(shown::remove);
        return shown;
    }

    private void permissions(String broker) {
        ask("wipe", () -> {
            admin.wipeWritePermOfBroker(namesrv, broker);
            return permission(broker);
        });
        ask("add", () -> {
            admin.addWritePermOfBroker(namesrv, broker);
            return permission(broker);
        });
        ask("wipe nobody", () -> admin.wipeWritePermOfBroker(namesrv, "nobody"));
    }

    private List<Integer> permission(String topic) throws Exception {
        return admin.examineTopicRouteInfo(topic).getQueueDatas().stream().map(QueueData::getPerm).toList();
    }

    private void deletion(String cluster) {
        ask("delete at no cluster", () -> {
            admin.deleteTopicInNameServer(Set.of(namesrv), "nowhere", "Gone1");
            return admin.examineTopicRouteInfo("Gone1").getQueueDatas().size();
        });
        ask("delete at the cluster", () -> {
            admin.deleteTopicInNameServer(Set.of(namesrv), cluster, "Gone1");
            return admin.examineTopicRouteInfo("Gone1");
        });
        ask("delete", () -> {
            admin.deleteTopicInNameServer(Set.of(namesrv), "Gone2");
            return admin.examineTopicRouteInfo("Gone2");
        });
    }

    private void ask(String what, Callable<Object> question) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("ask", what);
        try {
            Object answer = question.call();
            line.put("answer", answer instanceof RemotingSerializable body ? plain(body) : answer);
        } catch (MQClientException e) {
            line.put("answer", Map.of("refused", e.getResponseCode(), "remark", String.valueOf(e.getErrorMessage())));
        } catch (MQBrokerException e) {
            line.put("answer", Map.of("refused", e.getResponseCode(), "remark", String.valueOf(e.getErrorMessage())));
        } catch (Exception e) {
            line.put("answer", Map.of("failed", String.valueOf(e)));
        }
        out.line(line);
    }

    /** A body as maps. Keys are texts even where RocketMQ writes numbers. */
    private static Object plain(RemotingSerializable body) {
        return JSON.parse(JSON.toJSONString(body, JSONWriter.Feature.BrowserCompatible));
    }
}
