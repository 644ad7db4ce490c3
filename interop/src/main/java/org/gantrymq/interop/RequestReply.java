package org.gantrymq.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Scanner;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The real client at both ends of request-reply: its consumer replies to every request of TOPIC with {@code java:} and the body,
 * and its producer sends a request to the topic ASKED for each line of stdin and prints {@code {reply,properties}}, or
 * {@code {error}} after ten seconds. Both are traced.
 */
final class RequestReply implements Command {
    private static final int TIMEOUT_MS = 10_000;

    @Override
    public String usage() {
        return "--namesrv ADDRESS --topic TOPIC --ask ASKED --group GROUP";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.text("group"), true, null);
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(20_000); // the machine may have other work to do
        producer.setMqClientApiTimeout(20_000); // also for the route
        producer.start();
        DefaultMQPushConsumer consumer = consumer(options, producer);
        consumer.start();
        say(out, Map.of("ready", true));
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            say(out, ask(producer, new Message(options.text("ask"), lines.nextLine().getBytes(StandardCharsets.UTF_8))));
        }
        consumer.shutdown();
        producer.shutdown();
        return 0;
    }

    private static DefaultMQPushConsumer consumer(Options options, DefaultMQProducer producer) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"), true, null);
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setMqClientApiTimeout(20_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String text = "java:" + new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)));
                } catch (Exception e) {
                    e.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static Map<String, Object> ask(DefaultMQProducer producer, Message request) {
        Map<String, Object> line = new LinkedHashMap<>();
        try {
            Message reply = producer.request(request, TIMEOUT_MS);
            line.put("reply", new String(reply.getBody(), StandardCharsets.UTF_8));
            line.put("properties", reply.getProperties());
        } catch (Exception e) {
            line.put("error", e.toString());
        }
        return line;
    }

    private static void say(JsonLines out, Map<String, ?> line) {
        out.line(line);
        out.flush();
    }
}
