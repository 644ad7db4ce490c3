package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The real producer sends the messages of a file of JSON lines {@code {topic,queueId?,body|bodyBase64,tags?,keys?,
 * properties?,delayMs?,delayLevel?}} and prints {@code {status,topic,queueId,queueOffset,brokerName,msgId,offsetMsgId,recallHandle?}} for
 * each; an input line that is an array is one batch. A line {@code {topic,recall}} recalls the message of a handle and prints
 * {@code {topic,msgId}}.
 */
final class Send implements Command {
    @Override
    public String usage() {
        return "FILE --namesrv ADDRESS [--binary] [--compression TYPE] [--compress-over BYTES]"
            + " [--access-key KEY --secret-key SECRET]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        if (options.has("binary")) {
            System.setProperty("rocketmq.serialize.type", "ROCKETMQ");
        }
        RPCHook hook = options.has("access-key")
            ? new AclClientRPCHook(new SessionCredentials(options.text("access-key"), options.text("secret-key"))) : null;
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer", hook);
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(20_000); // the machine may be busy
        producer.setMqClientApiTimeout(20_000); // also for the route
        producer.setCompressMsgBodyOverHowmuch(options.integer("compress-over", 4096));
        producer.setCompressType(CompressionType.valueOf(options.text("compression", "ZLIB")));
        producer.start();
        for (String text : Files.readAllLines(Path.of(options.positional("FILE")))) {
            JSONObject recall = text.startsWith("[") ? new JSONObject() : JSON.parseObject(text);
            if (recall.containsKey("recall")) {
                String topic = recall.getString("topic");
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("topic", topic);
                line.put("msgId", producer.recallMessage(topic, recall.getString("recall")));
                out.line(line);
            } else {
                out.line(line(send(producer, text)));
            }
        }
        producer.shutdown();
        return 0;
    }

    private static SendResult send(DefaultMQProducer producer, String text) throws Exception {
        if (text.startsWith("[")) {
            List<Message> batch = new ArrayList<>();
            for (Object one : JSON.parseArray(text)) {
                batch.add(message((JSONObject) one));
            }
            return producer.send(batch);
        }
        JSONObject line = JSON.parseObject(text);
        Message message = message(line);
        if (line.containsKey("queueId")) {
            int id = line.getIntValue("queueId");
            return producer.send(message, (queues, same, arg) -> queue(queues, id), null);
        }
        return producer.send(message);
    }

    private static MessageQueue queue(List<MessageQueue> queues, int id) {
        return queues.stream().filter(queue -> queue.getQueueId() == id).findFirst().orElseThrow();
    }

    private static Message message(JSONObject line) {
        byte[] body = line.containsKey("bodyBase64") ? Base64.getDecoder().decode(line.getString("bodyBase64"))
            : line.getString("body").getBytes(java.nio.charset.StandardCharsets.UTF_8);
        Message message = new Message(line.getString("topic"), line.getString("tags"), line.getString("keys"), body);
        if (line.containsKey("properties")) {
            line.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        if (line.containsKey("delayMs")) {
            message.setDelayTimeMs(line.getLongValue("delayMs"));
        }
        if (line.containsKey("delayLevel")) {
            message.setDelayTimeLevel(line.getIntValue("delayLevel"));
        }
        return message;
    }

    private static Map<String, Object> line(SendResult result) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", result.getSendStatus().name());
        line.put("topic", result.getMessageQueue().getTopic());
        line.put("queueId", result.getMessageQueue().getQueueId());
        line.put("queueOffset", result.getQueueOffset());
        line.put("brokerName", result.getMessageQueue().getBrokerName());
        line.put("msgId", result.getMsgId());
        line.put("offsetMsgId", result.getOffsetMsgId());
        if (result.getRecallHandle() != null) {
            line.put("recallHandle", result.getRecallHandle());
        }
        return line;
    }
}
