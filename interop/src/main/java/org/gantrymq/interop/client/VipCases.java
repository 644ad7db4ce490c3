package org.gantrymq.interop.client;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The VIP channel: the broker's port minus two. Clients use it if configured, and clients of 4.x before 4.5 by default.
 */
final class VipCases {
    private VipCases() {
    }

    static void add(Cases cases) {
        cases.add("vip-send", VipCases::send);
        cases.add("vip-push", VipCases::push);
        cases.add("vip-admin", VipCases::admin);
    }

    private static void send(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        DefaultMQProducer producer = scene.producer("vips", one -> one.setVipChannelEnabled(true));
        scene.fact("sync", producer.send(new Message(topic, SendCases.bytes("sync")), queue).getSendStatus().name());
        List<Message> batch = List.of(new Message(topic, SendCases.bytes("b0")), new Message(topic, SendCases.bytes("b1")));
        scene.fact("batch", producer.send(batch, queue).getSendStatus().name());
        producer.sendOneway(new Message(topic, SendCases.bytes("oneway")), queue);
        scene.await("what was sent", () -> scene.site.admin.maxOffset(queue) == 4);
        scene.fact("bodies", scene.read(queue, 4).stream().map(Inbox::body).toList());
    }

    private static void push(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 3);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setVipChannelEnabled(true);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            inbox.put(some);
            boolean again = Inbox.body(some.get(0)).equals("m1") && some.get(0).getReconsumeTimes() == 0;
            context.setDelayLevelWhenNextConsume(1);
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        inbox.await(4);
        scene.fact("bodies", inbox.sorted());
        scene.awaitOffset(() -> scene.site.admin.examineConsumeStats(scene.site.broker, scene.name("group"), topic,
            10_000).computeTotalDiff() == 0);
    }

    private static void admin(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 1), "m", 2);
        scene.await("what was sent", () -> scene.site.admin.maxOffset(scene.queue(topic, 1)) == 2);
        DefaultMQAdminExt admin = new DefaultMQAdminExt(scene.name("admin"), 10_000);
        admin.setNamesrvAddr(scene.site.namesrv);
        admin.setInstanceName(scene.name("admin"));
        admin.setVipChannelEnabled(true);
        admin.start();
        scene.atEnd(admin::shutdown);
        scene.fact("offset", admin.maxOffset(scene.queue(topic, 1)));
        scene.fact("queues", admin.examineTopicStats(topic).getOffsetTable().size());
        scene.fact("version", String.valueOf(admin.fetchBrokerRuntimeStats(scene.site.broker).getTable().get("brokerVersionDesc")));
    }
}
