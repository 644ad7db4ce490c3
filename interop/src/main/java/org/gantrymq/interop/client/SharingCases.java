package org.gantrymq.interop.client;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers of one group, and their queues as members join and leave. */
@SuppressWarnings("deprecation") // the only way to see a consumer's queues, and to have it share anew
final class SharingCases {
    private SharingCases() {
    }

    static void add(Cases cases) {
        cases.add("sharing-two-consumers", SharingCases::two);
        cases.add("sharing-one-leaves", SharingCases::oneLeaves);
        cases.add("sharing-one-joins-late", SharingCases::oneJoinsLate);
        cases.add("sharing-more-consumers-than-queues", SharingCases::more);
        cases.add("sharing-by-circle", SharingCases::byCircle);
        cases.add("sharing-clients-of-a-group", SharingCases::clients);
    }

    private static List<MessageQueue> queues(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).sorted().toList();
    }

    static void awaitShares(Scene scene, String topic, List<DefaultMQPushConsumer> consumers, List<Integer> sizes)
        throws Exception {
        scene.await("shares of " + sizes, () -> {
            List<Integer> now = consumers.stream().map(one -> queues(one, topic).size()).sorted().toList();
            Set<MessageQueue> different = new HashSet<>();
            consumers.forEach(one -> different.addAll(queues(one, topic)));
            return now.equals(sizes) && different.size() == sizes.stream().mapToInt(one -> one).sum();
        });
    }

    private static List<DefaultMQPushConsumer> consumers(Scene scene, String topic, Inbox inbox, int count)
        throws Exception {
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            consumers.add(scene.push(scene.name("group"), topic, inbox));
        }
        return consumers;
    }

    private static void fill(Scene scene, String topic, int queues, String prefix) throws Exception {
        for (int id = 0; id < queues; id++) {
            scene.fill(scene.queue(topic, id), prefix + id, 3);
        }
    }

    private static void two(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        Inbox inbox = new Inbox();
        awaitShares(scene, topic, consumers(scene, topic, inbox, 2), List.of(2, 2));
        fill(scene, topic, 4, "m");
        inbox.await(12);
        scene.fact("bodies", inbox.sorted());
    }

    private static void oneLeaves(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        Inbox inbox = new Inbox();
        List<DefaultMQPushConsumer> consumers = consumers(scene, topic, inbox, 2);
        awaitShares(scene, topic, consumers, List.of(2, 2));
        fill(scene, topic, 4, "before");
        inbox.await(12);
        consumers.get(0).shutdown();
        awaitShares(scene, topic, consumers.subList(1, 2), List.of(4));
        inbox.clear();
        fill(scene, topic, 4, "after");
        // A consumer that stops between its listener's return and the commit leaves these messages to the others.
        scene.await("all", () -> those(inbox, "after").size() == 12);
        scene.fact("bodies", those(inbox, "after"));
    }

    private static void oneJoinsLate(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        Inbox inbox = new Inbox();
        List<DefaultMQPushConsumer> consumers = consumers(scene, topic, inbox, 1);
        awaitShares(scene, topic, consumers, List.of(4));
        fill(scene, topic, 4, "alone");
        inbox.await(12);
        consumers.addAll(consumers(scene, topic, inbox, 1));
        awaitShares(scene, topic, consumers, List.of(2, 2));
        inbox.clear();
        fill(scene, topic, 4, "shared");
        // A queue that moves to another consumer may repeat messages that the first one has consumed.
        scene.await("all", () -> those(inbox, "shared").size() == 12);
        scene.fact("shared", those(inbox, "shared"));
    }

    private static List<String> those(Inbox inbox, String prefix) {
        return inbox.bodies().filter(one -> one.startsWith(prefix)).distinct().sorted().toList();
    }

    private static void more(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        Inbox inbox = new Inbox();
        awaitShares(scene, topic, consumers(scene, topic, inbox, 3), List.of(0, 1, 1));
        fill(scene, topic, 2, "m");
        inbox.await(6);
        scene.fact("bodies", inbox.sorted());
    }

    private static void byCircle(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        Inbox inbox = new Inbox();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
            consumer.subscribe(topic, "*");
            inbox.listen(consumer);
            consumer.start();
            consumers.add(consumer);
        }
        awaitShares(scene, topic, consumers, List.of(2, 2));
        scene.fact("queues", consumers.stream()
            .map(one -> queues(one, topic).stream().map(MessageQueue::getQueueId).toList().toString()).sorted().toList());
    }

    private static void clients(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        List<DefaultMQPushConsumer> consumers = consumers(scene, topic, new Inbox(), 2);
        String group = scene.name("group");
        var client = consumers.get(0).getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl();
        scene.await("both", () -> client.getConsumerIdListByGroup(scene.site.broker, group, 3000).size() == 2);
        consumers.get(1).shutdown();
        scene.await("one", () -> client.getConsumerIdListByGroup(scene.site.broker, group, 3000).size() == 1);
        scene.refused("nobody", () -> client.getConsumerIdListByGroup(scene.site.broker, scene.name("none"), 3000));
    }
}
