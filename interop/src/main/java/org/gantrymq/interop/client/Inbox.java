package org.gantrymq.interop.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** The messages that consumers received, in order of arrival. */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    synchronized void put(List<MessageExt> some) {
        messages.addAll(some);
        notifyAll();
    }

    synchronized List<MessageExt> messages() {
        return new ArrayList<>(messages);
    }

    synchronized int size() {
        return messages.size();
    }

    synchronized void clear() {
        messages.clear();
    }

    Stream<String> bodies() {
        return messages().stream().map(Inbox::body);
    }

    List<String> inOrder() {
        return bodies().toList();
    }

    List<String> sorted() {
        return bodies().sorted().toList();
    }

    <T> List<T> of(Function<MessageExt, T> fact) {
        return messages().stream().map(fact).toList();
    }

    /** Waits for a number of messages. There may be more. */
    synchronized void await(int count) throws InterruptedException {
        long deadline = System.currentTimeMillis() + Scene.PATIENCE_MS;
        while (messages.size() < count) {
            long left = deadline - System.currentTimeMillis();
            if (left <= 0) {
                throw new AssertionError("only " + messages.size() + " of " + count + " messages: " + inOrder());
            }
            wait(left);
        }
    }

    void listen(DefaultMQPushConsumer consumer) {
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            put(some);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    void listenInOrder(DefaultMQPushConsumer consumer) {
        consumer.registerMessageListener((MessageListenerOrderly) (some, context) -> {
            put(some);
            return ConsumeOrderlyStatus.SUCCESS;
        });
    }
}
