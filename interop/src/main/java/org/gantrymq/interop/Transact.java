package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The real transactional producer: sends the messages of a file of JSON lines {@code {topic,body,state,check,properties?}} in
 * transactions and prints a line {@code {sent,state,transactionId}} for each; then it answers checks until stdin ends, and prints
 * {@code {checked,transactionId}} for each. It sends heart-beats to the brokers of TOPIC before it has sent anything. A message is checked by its property {@code check}, so that any producer can answer.
 */
final class Transact implements Command {
    @Override
    public String usage() {
        return "FILE --namesrv ADDRESS --group GROUP --topic TOPIC";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"), List.of(options.text("topic")));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(20_000); // the machine may have other work to do
        producer.setMqClientApiTimeout(20_000); // also for the route at the start
        producer.setTransactionListener(new Listener(out));
        producer.start();
        for (String text : Files.readAllLines(Path.of(options.positional("FILE")))) {
            JSONObject line = JSON.parseObject(text);
            byte[] body = line.getString("body").getBytes(StandardCharsets.UTF_8);
            Message message = new Message(line.getString("topic"), body);
            message.putUserProperty("check", line.getString("check"));
            if (line.containsKey("properties")) {
                line.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
            }
            LocalTransactionState state = LocalTransactionState.valueOf(line.getString("state"));
            say(out, line(producer.sendMessageInTransaction(message, state), line.getString("body")));
        }
        say(out, Map.of("ready", true));
        while (System.in.read() >= 0) {
            continue;
        }
        producer.shutdown();
        return 0;
    }

    private static Map<String, Object> line(TransactionSendResult result, String body) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("sent", body);
        line.put("status", result.getSendStatus().name());
        line.put("state", result.getLocalTransactionState().name());
        line.put("transactionId", result.getTransactionId());
        line.put("msgId", result.getMsgId());
        return line;
    }

    private static void say(JsonLines out, Map<String, ?> line) {
        synchronized (out) {
            out.line(line);
            out.flush();
        }
    }

    private static final class Listener implements TransactionListener {
        private final JsonLines out;

        Listener(JsonLines out) {
            this.out = out;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("checked", new String(message.getBody(), StandardCharsets.UTF_8));
            line.put("topic", message.getTopic());
            line.put("transactionId", message.getTransactionId());
            say(out, line);
            return LocalTransactionState.valueOf(message.getUserProperty("check"));
        }
    }
}
