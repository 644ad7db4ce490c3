package org.gantrymq.interop.client;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Push consumers that consume messages concurrently. */
@SuppressWarnings("deprecation") // the only way to see a consumer's queues, and to have it share anew
final class PushCases {
    private static final int MANY = 2000;

    private PushCases() {
    }

    static void add(Cases cases) {
        cases.add("push-concurrent", PushCases::concurrent);
        cases.add("push-while-sending", PushCases::whileSending);
        cases.add("push-backlog", PushCases::backlog);
        cases.add("push-tags", PushCases::tags);
        cases.add("push-changed-tags", PushCases::changedTags);
        cases.add("push-two-topics", PushCases::twoTopics);
        cases.add("push-broadcast", PushCases::broadcast);
        cases.add("push-from-last", scene -> from(scene, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        cases.add("push-from-first", scene -> from(scene, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET));
        cases.add("push-from-timestamp", PushCases::fromTimestamp);
        cases.add("push-pull-batch-sizes", PushCases::batchSizes);
        cases.add("push-before-the-topic", PushCases::beforeTheTopic);
        cases.add("push-second-heartbeat", PushCases::secondHeartbeat);
        cases.add("push-suspend-resume", PushCases::suspendResume);
        cases.add("push-more-queues-later", PushCases::moreQueuesLater);
        cases.add("push-compressed", PushCases::compressed);
        cases.add("push-partly-acknowledged", PushCases::partlyAcknowledged);
    }

    private static void concurrent(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        scene.fill(scene.queue(topic, 0), "a", 5);
        scene.fill(scene.queue(topic, 1), "b", 5);
        Inbox inbox = new Inbox();
        scene.push(scene.name("group"), topic, inbox);
        inbox.await(10);
        scene.fact("bodies", inbox.sorted());
        MessageExt first = inbox.messages().stream().filter(one -> Inbox.body(one).equals("a0")).findFirst().orElseThrow();
        scene.fact("first", SendCases.text(scene, first));
    }

    private static void whileSending(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        scene.push(scene.name("group"), topic, inbox);
        scene.send(scene.queue(topic, 0), "warm");
        inbox.await(1);
        int prompt = 0;
        for (int i = 0; i < 5; i++) {
            long start = System.nanoTime();
            scene.send(scene.queue(topic, 0), "m" + i);
            inbox.await(2 + i);
            prompt += System.nanoTime() - start < 1_000_000_000L ? 1 : 0;
        }
        scene.fact("most within a second", prompt >= 3); // a held pull is answered when a message arrives
        scene.fact("bodies", inbox.inOrder());
    }

    private static void backlog(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        for (int id = 0; id < 4; id++) {
            int queue = id;
            List<Message> batch = IntStream.range(0, MANY / 4)
                .mapToObj(i -> new Message(topic, SendCases.bytes(queue + "/" + i))).toList();
            scene.site.producer.send(batch, scene.queue(topic, id));
        }
        Inbox inbox = new Inbox();
        scene.push(scene.name("group"), topic, inbox);
        inbox.await(MANY);
        scene.fact("different", new HashSet<>(inbox.inOrder()).size());
    }

    private static void tags(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        for (String tag : new String[] {"red", "green", "blue", null, "RED"}) {
            scene.send(scene.queue(topic, 0), "is " + tag, tag);
        }
        Inbox all = new Inbox();
        scene.push(scene.name("all"), topic, all);
        all.await(5);
        // A new group also gets the messages of the expressions before it, and its threads may process them first.
        int ends = 0;
        for (String expression : new String[] {"red", "red || blue", "  green||red  ", "none"}) {
            int coloured = expression.equals("none") ? 0 : expression.contains("||") ? 2 : 1;
            Inbox inbox = new Inbox();
            DefaultMQPushConsumer consumer = scene.push(scene.name("group" + expression.hashCode()));
            consumer.subscribe(topic, expression + " || end");
            inbox.listen(consumer);
            consumer.start();
            inbox.await(coloured + ends);
            scene.send(scene.queue(topic, 0), "end", "end");
            inbox.await(coloured + ++ends);
            scene.fact(expression, new HashSet<>(inbox.inOrder()).stream().sorted().toList());
        }
        scene.fact("*", new HashSet<>(all.inOrder()).stream().sorted().toList());
    }

    private static void changedTags(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(topic, "red");
        inbox.listen(consumer);
        consumer.start();
        scene.send(scene.queue(topic, 0), "red", "red");
        inbox.await(1);
        consumer.subscribe(topic, "blue");
        // The broker learns of the new subscription with a heartbeat or a pull. A pull that it held before uses the old
        // one.
        scene.await("a blue one", () -> {
            scene.send(scene.queue(topic, 0), "blue", "blue");
            Thread.sleep(200);
            return inbox.inOrder().contains("blue");
        });
        scene.fact("seen", new HashSet<>(inbox.inOrder()).stream().sorted().toList());
    }

    private static void twoTopics(Scene scene) throws Exception {
        String first = scene.topic("first", 1);
        String second = scene.topic("second", 1);
        scene.send(scene.queue(first, 0), "1");
        scene.send(scene.queue(second, 0), "2");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(first, "*");
        consumer.subscribe(second, "*");
        inbox.listen(consumer);
        consumer.start();
        inbox.await(2);
        scene.fact("bodies", inbox.sorted());
    }

    private static void broadcast(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        List<Inbox> inboxes = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Inbox inbox = new Inbox();
            DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.setInstanceName(scene.name("instance" + i));
            consumer.subscribe(topic, "*");
            inbox.listen(consumer);
            consumer.start();
            inboxes.add(inbox);
        }
        scene.fill(scene.queue(topic, 0), "a", 3);
        scene.fill(scene.queue(topic, 1), "b", 3);
        for (Inbox inbox : inboxes) {
            inbox.await(6);
        }
        scene.fact("bodies", inboxes.stream().map(Inbox::sorted).toList());
    }

    private static void from(Scene scene, ConsumeFromWhere where) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "old", 3);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setConsumeFromWhere(where);
        consumer.subscribe(topic, "*");
        inbox.listen(consumer);
        consumer.start();
        inbox.await(3);
        scene.send(scene.queue(topic, 0), "new");
        inbox.await(4);
        scene.fact("bodies", inbox.sorted());
    }

    private static void fromTimestamp(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        scene.fill(queue, "old", 3);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(System.currentTimeMillis() - 3_600_000));
        consumer.subscribe(topic, "*");
        inbox.listen(consumer);
        consumer.start();
        inbox.await(3);
        scene.fact("bodies", inbox.sorted());
    }

    private static void batchSizes(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        List<Message> batch = IntStream.range(0, 100).mapToObj(i -> new Message(topic, SendCases.bytes("m" + i))).toList();
        scene.site.producer.send(batch);
        for (int size : new int[] {1, 7, 32}) {
            Inbox inbox = new Inbox();
            Set<Integer> sizes = java.util.concurrent.ConcurrentHashMap.newKeySet();
            DefaultMQPushConsumer consumer = scene.push(scene.name("group" + size));
            consumer.setPullBatchSize(size);
            consumer.setConsumeMessageBatchMaxSize(size);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
                sizes.add(some.size());
                inbox.put(some);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            inbox.await(100);
            scene.fact("of " + size, sizes.stream().sorted().toList());
        }
    }

    private static void beforeTheTopic(Scene scene) throws Exception {
        String topic = scene.name("later");
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setPollNameServerInterval(200);
        consumer.setHeartbeatBrokerInterval(200);
        consumer.subscribe(topic, "*");
        inbox.listen(consumer);
        consumer.start();
        scene.site.producer.send(new Message(topic, SendCases.bytes("a")));
        inbox.await(1);
        scene.fact("bodies", inbox.inOrder());
    }

    private static void secondHeartbeat(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setUseHeartbeatV2(true);
        consumer.setHeartbeatBrokerInterval(100);
        consumer.subscribe(topic, "*");
        inbox.listen(consumer);
        consumer.start();
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(1);
        Thread.sleep(400); // a few heartbeats that have only a fingerprint
        scene.send(scene.queue(topic, 0), "b");
        inbox.await(2);
        scene.fact("bodies", inbox.inOrder());
        scene.fact("connections", scene.site.admin.examineConsumerConnectionInfo(scene.name("group")).getConnectionSet().size());
    }

    private static void suspendResume(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"), topic, inbox);
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(1);
        consumer.suspend();
        consumer.resume();
        scene.send(scene.queue(topic, 0), "b");
        inbox.await(2);
        scene.fact("bodies", inbox.inOrder());
    }

    private static void moreQueuesLater(Scene scene) throws Exception {
        String topic = scene.topic("grows", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setPollNameServerInterval(200);
        consumer.subscribe(topic, "*");
        inbox.listen(consumer);
        consumer.start();
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(1);
        scene.topic("grows", 3);
        scene.await("three queues", () -> scene.site.admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getReadQueueNums() == 3);
        scene.send(scene.queue(topic, 2), "c");
        scene.await("the new queue's turn", () -> {
            consumer.getDefaultMQPushConsumerImpl().doRebalance();
            return inbox.inOrder().contains("c");
        });
        // Two members that divide queues at the same time may take one from each other, and uncommitted messages are
        // repeated.
        scene.fact("bodies", inbox.bodies().distinct().sorted().toList());
    }

    private static void compressed(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String body = "0123456789".repeat(1000);
        scene.send(scene.queue(topic, 0), body);
        Inbox inbox = new Inbox();
        scene.push(scene.name("group"), topic, inbox);
        inbox.await(1);
        scene.fact("equal", inbox.inOrder().get(0).equals(body));
    }

    private static void partlyAcknowledged(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        List<Message> batch = IntStream.range(0, 4).mapToObj(i -> new Message(topic, SendCases.bytes("m" + i))).toList();
        scene.site.producer.send(batch);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setConsumeMessageBatchMaxSize(4);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            inbox.put(some);
            context.setAckIndex(some.get(0).getReconsumeTimes() > 0 ? Integer.MAX_VALUE : 1);
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        inbox.await(6);
        scene.fact("again", inbox.messages().stream().filter(one -> one.getReconsumeTimes() == 1).map(Inbox::body).sorted().toList());
    }
}
