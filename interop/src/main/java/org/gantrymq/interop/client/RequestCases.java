package org.gantrymq.interop.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request-reply messaging: the broker passes the reply to the producer of the request. */
final class RequestCases {
    private RequestCases() {
    }

    private static Future<?> answer(Scene scene, String topic) throws Exception {
        CompletableFuture<Object> answered = new CompletableFuture<>();
        DefaultMQProducer answers = scene.producer("answers", one -> { });
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            for (MessageExt question : some) {
                try {
                    Message reply = MessageUtil.createReplyMessage(question, SendCases.bytes("re: " + Inbox.body(question)));
                    answered.complete(answers.send(reply));
                } catch (Exception e) {
                    answered.completeExceptionally(e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return answered;
    }

    static void reply(Scene scene) throws Exception {
        String topic = scene.topic("questions", 1);
        Future<?> answered = answer(scene, topic);
        DefaultMQProducer asks = scene.producer("asks", one -> { });
        Message reply = asks.request(new Message(topic, SendCases.bytes("why?")), 10_000);
        scene.fact("reply", SendCases.text(scene, (MessageExt) reply));
        // The requester has the reply before the replying client has the broker's answer.
        answered.get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    static void unanswered(Scene scene) throws Exception {
        String topic = scene.topic("questions", 1);
        DefaultMQProducer asks = scene.producer("asks", one -> { });
        scene.refused("request", () -> asks.request(new Message(topic, SendCases.bytes("why?")), 1500));
        scene.fact("question", SendCases.text(scene, scene.read(scene.queue(topic, 0), 1).get(0)));
    }
}
