package org.gantrymq.interop.client;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer: subscribe, assign, seek, pause, commit. */
final class LiteCases {
    private LiteCases() {
    }

    static void add(Cases cases) {
        cases.add("lite-subscribed", LiteCases::subscribed);
        cases.add("lite-assigned", LiteCases::assigned);
        cases.add("lite-seek", LiteCases::seek);
        cases.add("lite-seek-by-time", LiteCases::seekByTime);
        cases.add("lite-paused", LiteCases::paused);
        cases.add("lite-committed", LiteCases::committed);
        cases.add("lite-tags", LiteCases::tags);
        cases.add("lite-two-consumers", LiteCases::two);
        cases.add("lite-nothing-there", LiteCases::nothing);
        cases.add("lite-from-last", LiteCases::fromLast);
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) {
        List<String> bodies = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Scene.PATIENCE_MS;
        while (bodies.size() < count && System.currentTimeMillis() < deadline) {
            for (MessageExt one : consumer.poll(500)) {
                bodies.add(Inbox.body(one));
            }
        }
        return bodies;
    }

    /**
     * The messages after a seek: {@code wanted}, once the last polled messages are these, else all polled ones. A pull
     * that was under way at the seek still delivers its messages.
     */
    private static List<String> pollUntil(DefaultLitePullConsumer consumer, String... wanted) {
        List<String> bodies = new ArrayList<>();
        List<String> last = List.of();
        long deadline = System.currentTimeMillis() + Scene.PATIENCE_MS;
        while (!last.equals(List.of(wanted)) && System.currentTimeMillis() < deadline) {
            consumer.poll(500).forEach(one -> bodies.add(Inbox.body(one)));
            last = bodies.subList(Math.max(bodies.size() - wanted.length, 0), bodies.size());
        }
        return last.equals(List.of(wanted)) ? last : bodies;
    }

    private static void subscribed(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 0), "a", 5);
        scene.fill(scene.queue(topic, 1), "b", 5);
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.subscribe(topic, "*");
        consumer.start();
        scene.fact("bodies", poll(consumer, 10).stream().sorted().toList());
        scene.fact("queues", consumer.fetchMessageQueues(topic).stream().map(MessageQueue::getQueueId).sorted().toList());
    }

    private static void assigned(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 0), "a", 3);
        scene.fill(scene.queue(topic, 1), "b", 3);
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.start();
        consumer.assign(List.of(scene.queue(topic, 1)));
        scene.fact("bodies", poll(consumer, 3));
        scene.fact("assigned", consumer.assignment().stream().map(MessageQueue::getQueueId).toList());
    }

    private static void seek(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        scene.fill(queue, "m", 5);
        scene.await("what was sent", () -> scene.site.admin.maxOffset(queue) == 5);
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.start();
        consumer.assign(List.of(queue));
        consumer.seek(queue, 3);
        scene.fact("from three", pollUntil(consumer, "m3", "m4"));
        consumer.seekToBegin(queue);
        scene.fact("from the begin", pollUntil(consumer, "m0", "m1", "m2", "m3", "m4"));
        consumer.seekToEnd(queue);
        scene.send(queue, "new");
        scene.fact("from the end", pollUntil(consumer, "new"));
        scene.refused("beyond", () -> {
            consumer.seek(queue, 77);
            return null;
        });
    }

    private static void seekByTime(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        scene.fill(queue, "m", 3);
        Thread.sleep(20);
        long between = System.currentTimeMillis();
        Thread.sleep(20);
        scene.fill(queue, "n", 2);
        scene.await("what was sent", () -> scene.site.admin.maxOffset(queue) == 5);
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.start();
        consumer.assign(List.of(queue));
        long offset = consumer.offsetForTimestamp(queue, between);
        scene.fact("offset", offset);
        consumer.seek(queue, offset);
        scene.fact("bodies", pollUntil(consumer, "n0", "n1"));
    }

    private static void paused(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.start();
        consumer.assign(List.of(queue));
        consumer.pause(List.of(queue));
        scene.send(queue, "for a pull that was under way");
        consumer.poll(1500);
        scene.fill(queue, "m", 2);
        scene.fact("while it pauses", consumer.poll(1500).size());
        consumer.resume(List.of(queue));
        List<String> then = new ArrayList<>();
        scene.await("the rest", () -> {
            consumer.poll(500).forEach(one -> then.add(Inbox.body(one)));
            return then.contains("m1");
        });
        scene.fact("then", then.stream().filter(one -> one.startsWith("m")).toList());
    }

    private static void committed(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        scene.fill(queue, "m", 4);
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, "*");
        consumer.start();
        scene.fact("first", poll(consumer, 4));
        scene.await("a commit", () -> {
            consumer.commit(Map.of(queue, 4L), true);
            return consumer.committed(queue) == 4;
        });
        consumer.shutdown();
        scene.send(queue, "new");
        DefaultLitePullConsumer other = scene.lite(scene.name("group"));
        other.subscribe(topic, "*");
        other.start();
        scene.fact("second", poll(other, 1));
    }

    private static void tags(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        for (int i = 0; i < 6; i++) {
            scene.send(scene.queue(topic, 0), "m" + i, i % 2 == 0 ? "red" : "blue");
        }
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.subscribe(topic, MessageSelector.byTag("blue"));
        consumer.start();
        scene.fact("blue", poll(consumer, 3));
    }

    private static void two(Scene scene) throws Exception {
        String topic = scene.topic("one", 4);
        List<DefaultLitePullConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
            consumer.setInstanceName("lite" + i + scene.site.run);
            consumer.subscribe(topic, "*");
            consumer.start();
            consumers.add(consumer);
        }
        scene.await("shares", () -> consumers.get(0).assignment().size() == 2 && consumers.get(1).assignment().size() == 2);
        Map<String, Object> said = new TreeMap<>();
        for (int id = 0; id < 4; id++) {
            scene.fill(scene.queue(topic, id), "q" + id, 1);
        }
        List<String> bodies = new ArrayList<>();
        consumers.forEach(one -> bodies.addAll(poll(one, 2)));
        said.put("bodies", bodies.stream().sorted().toList());
        scene.fact("all", said);
    }

    private static void nothing(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.subscribe(topic, "*");
        consumer.start();
        scene.fact("polled", consumer.poll(300).size());
        scene.refused("assign as well", () -> {
            consumer.assign(List.of(scene.queue(topic, 0)));
            return null;
        });
    }

    private static void fromLast(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 2);
        // A group that would begin at the last message begins at the first if that is still in memory.
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        scene.fact("bodies", poll(consumer, 2));
    }
}
