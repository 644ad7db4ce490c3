package org.gantrymq.interop.client;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Offsets of groups: committed, reset in both ways, cloned; and what the answer to a pull says beside its messages. */
@SuppressWarnings("deprecation") // what people still use, deprecated or not
final class OffsetCases {
    private static final long TIMEOUT_MS = 10_000;

    private OffsetCases() {
    }

    static void add(Cases cases) {
        cases.add("offset-committed", OffsetCases::committed);
        cases.add("offset-reset-offline", OffsetCases::resetOffline);
        cases.add("offset-reset-online", OffsetCases::resetOnline);
        cases.add("offset-reset-of-a-queue", OffsetCases::resetQueue);
        cases.add("offset-reset-refused", OffsetCases::resetRefused);
        cases.addAlone("offset-reset-in-the-clients", OffsetCases::resetInClients);
        cases.add("offset-cloned", OffsetCases::cloned);
        cases.add("pull-beyond-the-end", OffsetCases::beyond);
        cases.add("pull-filtered", OffsetCases::filtered);
        cases.add("pull-refused", OffsetCases::refused);
        cases.add("pull-waits", OffsetCases::waits);
        cases.add("pull-waits-in-vain", OffsetCases::waitsInVain);
        cases.add("pull-waits-for-its-tag", OffsetCases::waitsForTag);
        cases.addAlone("pull-from-a-mute-broker", OffsetCases::mute);
    }

    private static String consumed(Scene scene, String group, String topic) throws Exception {
        Map<String, Object> said = new TreeMap<>();
        scene.site.admin.examineConsumeStats(scene.site.broker, group, topic, TIMEOUT_MS).getOffsetTable()
            .forEach((queue, offset) -> said.put(String.valueOf(queue.getQueueId()), offset.getConsumerOffset()));
        return said.toString();
    }

    private static String text(Map<MessageQueue, Long> offsets) {
        Map<String, Object> said = new TreeMap<>();
        offsets.forEach((queue, offset) -> said.put(String.valueOf(queue.getQueueId()), offset));
        return said.toString();
    }

    private static void committed(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 5);
        try (Reader reader = new Reader(scene, scene.name("group"))) {
            MessageQueue queue = scene.queue(topic, 0);
            scene.fact("none", reader.consumer.fetchConsumeOffset(queue, true));
            scene.await("it", () -> {
                reader.consumer.updateConsumeOffset(queue, 3);
                reader.consumer.getOffsetStore().persist(queue); // one-way, and failures are only logged
                return reader.consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE) == 3;
            });
            scene.fact("some", consumed(scene, scene.name("group"), topic));
        }
    }

    private static void resetOffline(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        String group = scene.group("group", 3);
        long before = System.currentTimeMillis();
        for (int id = 0; id < 2; id++) {
            scene.fill(scene.queue(topic, id), "m", 4);
            scene.site.admin.updateConsumeOffset(scene.site.broker, group, scene.queue(topic, id), 4);
        }
        Thread.sleep(20);
        long between = System.currentTimeMillis();
        Thread.sleep(20);
        scene.fill(scene.queue(topic, 0), "n", 2);
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 0)) == 6);
        DefaultMQAdminExt admin = scene.site.admin;
        scene.fact("to the first", text(admin.resetOffsetByTimestamp(topic, group, before - 60_000, true)));
        scene.fact("then", consumed(scene, group, topic));
        scene.fact("to the middle", text(admin.resetOffsetByTimestamp(topic, group, between, true)));
        scene.fact("and then", consumed(scene, group, topic));
        scene.fact("to the last", text(admin.resetOffsetByTimestamp(topic, group, -1, true)));
        scene.fact("in the end", consumed(scene, group, topic));
    }

    private static void resetOnline(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        scene.push(scene.name("group"), topic, inbox);
        scene.fill(scene.queue(topic, 0), "m", 3);
        inbox.await(3);
        scene.awaitOffset(() -> consumed(scene, scene.name("group"), topic).equals("{0=3}"));
        inbox.clear();
        scene.fact("reset", text(scene.site.admin.resetOffsetByTimestamp(topic, scene.name("group"), 0, true)));
        inbox.await(3);
        scene.fact("again", inbox.sorted());
        scene.awaitOffset(() -> consumed(scene, scene.name("group"), topic).equals("{0=3}"));
    }

    private static void resetQueue(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        String group = scene.group("group", 3);
        for (int id = 0; id < 2; id++) {
            scene.fill(scene.queue(topic, id), "m", 4);
            scene.site.admin.updateConsumeOffset(scene.site.broker, group, scene.queue(topic, id), 4);
        }
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 1)) == 4);
        scene.site.admin.resetOffsetByQueueId(scene.site.broker, group, topic, 1, 2);
        scene.fact("then", consumed(scene, group, topic));
        scene.refused("beyond", () -> {
            scene.site.admin.resetOffsetByQueueId(scene.site.broker, group, topic, 1, 77);
            return null;
        });
    }

    private static void resetRefused(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.refused("no group", () -> scene.site.admin.resetOffsetByTimestamp(topic, scene.name("none"), 0, true));
        String group = scene.group("group", 3);
        scene.refused("no topic", () -> scene.site.admin.resetOffsetByTimestamp(scene.name("nowhere"), group, 0, true));
    }

    private static void resetInClients(Scene scene) throws Exception {
        scene.site.configured("useServerSideResetOffset", "false", () -> {
            String topic = scene.topic("one", 1);
            Inbox inbox = new Inbox();
            scene.push(scene.name("group"), topic, inbox);
            scene.fill(scene.queue(topic, 0), "m", 3);
            inbox.await(3);
            scene.awaitOffset(() -> consumed(scene, scene.name("group"), topic).equals("{0=3}"));
            inbox.clear();
            scene.fact("reset", text(scene.site.admin.resetOffsetByTimestamp(topic, scene.name("group"), 0, true)));
            inbox.await(3);
            scene.fact("again", inbox.sorted());
            String group = scene.group("nobody", 3);
            scene.refused("nobody there", () -> scene.site.admin.resetOffsetByTimestamp(topic, group, 0, true));
            scene.site.admin.updateConsumeOffset(scene.site.broker, group, scene.queue(topic, 0), 3);
            scene.refused("still nobody there", () -> scene.site.admin.resetOffsetByTimestamp(topic, group, 0, true));
            return null;
        });
    }

    private static void cloned(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        String from = scene.group("from", 3);
        String to = scene.group("to", 3);
        TopicAdminCases.retryTopic(scene, from);
        for (int id = 0; id < 2; id++) {
            scene.fill(scene.queue(topic, id), "m", 4);
            scene.site.admin.updateConsumeOffset(scene.site.broker, from, scene.queue(topic, id), 2 + id);
        }
        scene.site.admin.cloneGroupOffset(from, to, topic, true);
        scene.fact("cloned", consumed(scene, to, topic));
    }

    static String text(PullResult result) {
        return result.getPullStatus() + " next " + result.getNextBeginOffset() + " of " + result.getMinOffset() + "-"
            + result.getMaxOffset() + " with " + (result.getMsgFoundList() == null ? "none"
            : String.valueOf(result.getMsgFoundList().stream().map(Inbox::body).toList()));
    }

    private static void beyond(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 0), "m", 4);
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 0)) == 4);
        try (Reader reader = new Reader(scene)) {
            for (long offset : new long[] {0, 2, 3, 4, 5, 100}) {
                scene.fact("from " + offset, text(reader.consumer.pull(scene.queue(topic, 0), "*", offset, 2)));
            }
            for (long offset : new long[] {0, 1, 7}) {
                scene.fact("empty from " + offset, text(reader.consumer.pull(scene.queue(topic, 1), "*", offset, 2)));
            }
        }
    }

    private static void filtered(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        for (int i = 0; i < 6; i++) {
            scene.send(scene.queue(topic, 0), "m" + i, i % 2 == 0 ? "red" : "blue");
        }
        scene.send(scene.queue(topic, 0), "none");
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 0)) == 7);
        try (Reader reader = new Reader(scene)) {
            for (String tags : List.of("*", "red", "blue || red", "green", "red||", "  red  ")) {
                scene.fact(tags, text(reader.consumer.pull(scene.queue(topic, 0), tags, 0, 32)));
            }
            scene.fact("red, one", text(reader.consumer.pull(scene.queue(topic, 0), "red", 1, 1)));
        }
    }

    private static void refused(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        try (Reader reader = new Reader(scene)) {
            scene.refused("queue", () -> reader.consumer.pull(scene.queue(topic, 3), "*", 0, 2));
            scene.refused("topic", () -> reader.consumer.pull(scene.queue(scene.name("nowhere"), 0), "*", 0, 2));
            scene.refused("tags", () -> reader.consumer.pull(scene.queue(topic, 0), "||", 0, 2));
            TopicAdminCases.permit(scene, topic, 2);
            scene.refused("write-only", () -> reader.consumer.pull(scene.queue(topic, 0), "*", 0, 2));
        }
        DefaultMQPushConsumer consumer = scene.push(scene.name("sql"));
        consumer.subscribe(topic, MessageSelector.bySql("a > 1"));
        new Inbox().listen(consumer);
        scene.refused("SQL push", () -> {
            consumer.start();
            return null;
        });
    }

    private static void waits(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 1);
        try (Reader reader = new Reader(scene)) {
            scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 0)) == 1);
            Thread later = new Thread(() -> {
                try {
                    Thread.sleep(500);
                    scene.send(scene.queue(topic, 0), "late");
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            later.start();
            long begin = System.currentTimeMillis();
            scene.fact("found", text(reader.consumer.pullBlockIfNotFound(scene.queue(topic, 0), "*", 1, 32)));
            long took = System.currentTimeMillis() - begin;
            scene.fact("when it came", took >= 450 && took < 3000);
            later.join();
        }
    }

    private static void waitsInVain(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        try (Reader reader = new Reader(scene)) {
            reader.consumer.setBrokerSuspendMaxTimeMillis(1000);
            long begin = System.currentTimeMillis();
            scene.fact("found", text(reader.consumer.pullBlockIfNotFound(scene.queue(topic, 0), "*", 0, 32)));
            long took = System.currentTimeMillis() - begin;
            // The real broker checks held pulls only every five seconds.
            scene.fact("after its time", took >= 950 && took < 8000);
        }
    }

    private static void waitsForTag(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        try (Reader reader = new Reader(scene)) {
            Thread later = new Thread(() -> {
                try {
                    Thread.sleep(200);
                    scene.send(scene.queue(topic, 0), "no", "blue");
                    Thread.sleep(200);
                    scene.send(scene.queue(topic, 0), "yes", "red");
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            later.start();
            // Every five seconds a broker answers all held pulls of queues that grew, matching or not.
            PullResult[] found = new PullResult[1];
            scene.await("red", () -> {
                found[0] = reader.consumer.pullBlockIfNotFound(scene.queue(topic, 0), "red", 0, 32);
                return found[0].getPullStatus() == PullStatus.FOUND;
            });
            scene.fact("found", text(found[0]));
            later.join();
        }
    }

    private static void mute(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        try (Reader reader = new Reader(scene)) {
            scene.site.configured("brokerPermission", "2", () -> {
                scene.refused("pull", () -> reader.consumer.pull(scene.queue(topic, 0), "*", 0, 2));
                return null;
            });
        }
    }
}
