package org.gantrymq.interop.client;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers that consume each queue in order. */
final class OrderlyCases {
    private OrderlyCases() {
    }

    static void add(Cases cases) {
        cases.add("orderly", OrderlyCases::plain);
        cases.add("orderly-suspended", OrderlyCases::suspended);
        cases.add("orderly-exception", OrderlyCases::exception);
        cases.add("orderly-then-dead", OrderlyCases::thenDead);
        cases.add("orderly-two-consumers", OrderlyCases::twoConsumers);
        cases.add("orderly-one-leaves", OrderlyCases::oneLeaves);
    }

    private static void plain(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        scene.fill(scene.queue(topic, 0), "a", 20);
        scene.fill(scene.queue(topic, 1), "b", 20);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(topic, "*");
        inbox.listenInOrder(consumer);
        consumer.start();
        inbox.await(40);
        scene.fact("a", inbox.bodies().filter(one -> one.startsWith("a")).toList());
        scene.fact("b", inbox.bodies().filter(one -> one.startsWith("b")).toList());
    }

    private static DefaultMQPushConsumer listening(Scene scene, String topic, MessageListenerOrderly listener)
        throws Exception {
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(topic, "*");
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.registerMessageListener(listener);
        return consumer;
    }

    private static void suspended(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 3);
        Inbox inbox = new Inbox();
        listening(scene, topic, (some, context) -> {
            inbox.put(some);
            return inbox.size() <= 2 ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        }).start();
        inbox.await(5);
        scene.fact("bodies", inbox.inOrder());
    }

    private static void exception(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 2);
        Inbox inbox = new Inbox();
        listening(scene, topic, (some, context) -> {
            inbox.put(some);
            if (inbox.size() == 1) {
                throw new IllegalStateException("on purpose");
            }
            return ConsumeOrderlyStatus.SUCCESS;
        }).start();
        inbox.await(3);
        scene.fact("bodies", inbox.inOrder());
    }

    private static void thenDead(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = listening(scene, topic, (some, context) -> {
            inbox.put(some);
            return Inbox.body(some.get(0)).equals("m0") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.setMaxReconsumeTimes(2);
        consumer.start();
        scene.await("the second message", () -> inbox.inOrder().contains("m1"));
        scene.fact("deliveries", inbox.messages().stream().map(one -> Inbox.body(one) + " " + one.getReconsumeTimes()).toList());
        String dlq = "%DLQ%" + scene.name("group");
        scene.awaitRoute(dlq);
        TopicAdminCases.permit(scene, dlq, 6);
        scene.fact("dead", SendCases.text(scene, scene.read(scene.queue(dlq, 0), 1).get(0)));
    }

    private static void twoConsumers(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        Inbox inbox = new Inbox();
        for (int i = 0; i < 2; i++) {
            listening(scene, topic, (some, context) -> {
                inbox.put(some);
                return ConsumeOrderlyStatus.SUCCESS;
            }).start();
        }
        for (int id = 0; id < 4; id++) {
            scene.fill(scene.queue(topic, id), id + "-", 10);
        }
        inbox.await(40);
        for (int id = 0; id < 4; id++) {
            int queue = id;
            List<MessageExt> of = inbox.messages().stream().filter(one -> one.getQueueId() == queue).toList();
            scene.fact("queue " + id, of.stream().map(Inbox::body).distinct().toList());
        }
    }

    private static void oneLeaves(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        Inbox first = new Inbox();
        Inbox second = new Inbox();
        DefaultMQPushConsumer stays = listening(scene, topic, (some, context) -> {
            first.put(some);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        DefaultMQPushConsumer leaves = listening(scene, topic, (some, context) -> {
            second.put(some);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        stays.start();
        leaves.start();
        SharingCases.awaitShares(scene, topic, List.of(stays, leaves), List.of(1, 1));
        leaves.shutdown();
        SharingCases.awaitShares(scene, topic, List.of(stays), List.of(2));
        scene.fill(scene.queue(topic, 0), "a", 3);
        scene.fill(scene.queue(topic, 1), "b", 3);
        first.await(6);
        scene.fact("bodies", first.sorted());
    }
}
