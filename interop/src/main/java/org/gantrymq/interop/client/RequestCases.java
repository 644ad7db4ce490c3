package org.gantrymq.interop.client;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A message that is answered by another, which the broker hands to whoever asked. */
final class RequestCases {
    private RequestCases() {
    }

    private static void answer(Scene scene, String topic) throws Exception {
        DefaultMQProducer answers = scene.producer("answers", one -> { });
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            for (MessageExt question : some) {
                try {
                    answers.send(MessageUtil.createReplyMessage(question, SendCases.bytes("re: " + Inbox.body(question))));
                } catch (Exception e) {
                    scene.fact("answer failed", Scene.trace(e));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    static void reply(Scene scene) throws Exception {
        String topic = scene.topic("questions", 1);
        answer(scene, topic);
        DefaultMQProducer asks = scene.producer("asks", one -> { });
        Message reply = asks.request(new Message(topic, SendCases.bytes("why?")), 10_000);
        scene.fact("reply", SendCases.text(scene, (MessageExt) reply));
    }

    static void unanswered(Scene scene) throws Exception {
        String topic = scene.topic("questions", 1);
        DefaultMQProducer asks = scene.producer("asks", one -> { });
        scene.refused("request", () -> asks.request(new Message(topic, SendCases.bytes("why?")), 300));
        scene.fact("question", SendCases.text(scene, scene.read(scene.queue(topic, 0), 1).get(0)));
    }
}
