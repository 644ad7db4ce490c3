package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * The real push consumer, a member of a group until stdin ends. It prints {@code {"kind":"ready","clientId"}}, then a
 * line for each message as {@code pull} does, and {@code {"kind":"assigned","topic","queues"}} whenever its queues
 * changed. With {@code --offsets DIR} a broadcasting consumer stores its offsets there. With {@code --fail-first} it asks
 * for every message once more; the line of a message that fails has {@code failedAt}, a time in milliseconds before that.
 */
final class Consume implements Command {
    @Override
    public String usage() {
        return "--namesrv ADDRESS --topic TOPIC --group GROUP [--instance NAME] [--offsets DIR] [--orderly]"
            + " [--broadcast] [--sql EXPRESSION] [--fail-first]";
    }

    @Override
    @SuppressWarnings("deprecation") // getDefaultMQPushConsumerImpl: nothing else tells the client id
    public int run(Options options, JsonLines out) throws Exception {
        if (options.has("offsets")) {
            System.setProperty("rocketmq.client.localOffsetStoreDir", options.text("offsets"));
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setMqClientApiTimeout(20_000); // the machine may have other work to do
        consumer.setInstanceName(options.text("instance", "DEFAULT"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Waits at the shutdown, so that a printed message counts as consumed.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.setMessageModel(options.has("broadcast") ? MessageModel.BROADCASTING : MessageModel.CLUSTERING);
        consumer.subscribe(options.text("topic"),
            options.has("sql") ? MessageSelector.bySql(options.text("sql")) : MessageSelector.byTag("*"));
        consumer.setMessageQueueListener((topic, all, mine) -> line(out, Map.of("kind", "assigned", "topic", topic,
            "queues", mine.stream().map(queue -> queue.getQueueId()).sorted().collect(Collectors.toList()))));
        if (options.has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> line(out, message(message)));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            boolean failFirst = options.has("fail-first");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (failFirst && messages.get(0).getReconsumeTimes() == 0) { // a batch has one message
                    Map<String, Object> failed = message(messages.get(0));
                    failed.put("failedAt", System.currentTimeMillis());
                    line(out, failed);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                messages.forEach(message -> line(out, message(message)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        line(out, Map.of("kind", "ready", "clientId",
            consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId()));
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        return 0;
    }

    private static void line(JsonLines out, Map<String, ?> line) {
        synchronized (out) {
            out.line(line);
            out.flush();
        }
    }

    private static Map<String, Object> message(MessageExt message) {
        return new LinkedHashMap<>(new MessageLine(message.getTopic(), message.getQueueId(), message.getQueueOffset(),
            message.getCommitLogOffset(), message.getStoreSize())
            .with("uniqKey", message.getMsgId())
            .of(message));
    }
}
