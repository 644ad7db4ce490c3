package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * The POP calls of the real client (those of RocketMQ's proxy and of its own tests). Each line of stdin is a call
 * {@code {do,broker,brokerName,topic,group,…}}; a line of stdout says what came of it. Further fields: pop has {@code max,
 * invisibleMs,pollMs,order,expression,type,queueId}, ack and change have {@code handle} and {@code invisibleMs}, batchAck has
 * {@code handles}.
 */
final class Pop implements Command {
    private static final long TIMEOUT_MS = 60_000;

    @Override
    public String usage() {
        return "--namesrv ADDRESS";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        MQClientAPIExt client = client(options.text("namesrv"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = lines.readLine(); text != null; text = lines.readLine()) {
            Map<String, Object> line = new LinkedHashMap<>();
            try {
                call(client, JSON.parseObject(text), line);
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                line.put("error", cause.toString());
            }
            out.line(line);
            out.flush();
        }
        client.shutdown();
        return 0;
    }

    /** A started client with connections of its own. */
    static MQClientAPIExt client(String namesrv) {
        ClientConfig config = new ClientConfig();
        config.setNamesrvAddr(namesrv);
        MQClientAPIExt client = new MQClientAPIExt(config, new NettyClientConfig(), new ClientRemotingProcessor(null), null);
        client.updateNameServerAddressList();
        client.start();
        return client;
    }

    private static void call(MQClientAPIExt client, JSONObject asked, Map<String, Object> line) throws Exception {
        switch (asked.getString("do")) {
            case "pop" -> pop(client, asked, line);
            case "ack" -> status(client.ackMessageAsync(asked.getString("broker"),
                ack(asked.getString("topic"), asked.getString("group"), asked.getString("handle")), TIMEOUT_MS)
                .get(TIMEOUT_MS, TimeUnit.MILLISECONDS), line);
            case "batchAck" -> status(client.batchAckMessageAsync(asked.getString("broker"), asked.getString("topic"),
                asked.getString("group"), asked.getList("handles", String.class), TIMEOUT_MS)
                .get(TIMEOUT_MS, TimeUnit.MILLISECONDS), line);
            case "change" -> status(client.changeInvisibleTimeAsync(asked.getString("broker"), asked.getString("brokerName"),
                change(asked), TIMEOUT_MS).get(TIMEOUT_MS, TimeUnit.MILLISECONDS), line);
            case "notification" -> line.put("hasMessage", client.notification(asked.getString("broker"), notification(asked),
                TIMEOUT_MS).get(TIMEOUT_MS, TimeUnit.MILLISECONDS));
            default -> throw new UsageException("no such call: " + asked);
        }
    }

    private static void pop(MQClientAPIExt client, JSONObject asked, Map<String, Object> line) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setTopic(asked.getString("topic"));
        header.setConsumerGroup(asked.getString("group"));
        header.setQueueId(asked.getIntValue("queueId", -1));
        header.setMaxMsgNums(asked.getIntValue("max", 32));
        header.setInvisibleTime(asked.getLongValue("invisibleMs"));
        header.setPollTime(asked.getLongValue("pollMs"));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType(asked.getString("type"));
        header.setExp(asked.getString("expression"));
        header.setOrder(asked.getBooleanValue("order"));
        PopResult result = client.popMessageAsync(asked.getString("broker"), asked.getString("brokerName"), header,
            TIMEOUT_MS).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        line.put("status", result.getPopStatus().name());
        List<Map<String, Object>> messages = new ArrayList<>();
        if (result.getPopStatus() == PopStatus.FOUND) {
            for (MessageExt message : result.getMsgFoundList()) {
                Map<String, Object> one = new LinkedHashMap<>();
                one.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
                one.put("topic", message.getTopic());
                one.put("queueId", message.getQueueId());
                one.put("queueOffset", message.getQueueOffset());
                one.put("reconsumeTimes", message.getReconsumeTimes());
                one.put("storeTimestamp", message.getStoreTimestamp());
                one.put("handle", message.getProperty(MessageConst.PROPERTY_POP_CK));
                messages.add(one);
            }
        }
        line.put("messages", messages);
    }

    /** The acknowledgement of the message with a receipt handle, which {@code group} has popped from {@code topic}. */
    static AckMessageRequestHeader ack(String topic, String group, String handle) {
        String[] parts = ExtraInfoUtil.split(handle);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        return header;
    }

    private static ChangeInvisibleTimeRequestHeader change(JSONObject asked) {
        String handle = asked.getString("handle");
        String[] parts = ExtraInfoUtil.split(handle);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(asked.getString("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, asked.getString("topic"), asked.getString("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        header.setInvisibleTime(asked.getLongValue("invisibleMs"));
        return header;
    }

    private static NotificationRequestHeader notification(JSONObject asked) {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setTopic(asked.getString("topic"));
        header.setConsumerGroup(asked.getString("group"));
        header.setQueueId(asked.getIntValue("queueId", -1));
        header.setPollTime(asked.getLongValue("pollMs"));
        header.setBornTime(System.currentTimeMillis());
        return header;
    }

    private static void status(AckResult result, Map<String, Object> line) {
        line.put("status", result.getStatus().name());
        if (result.getExtraInfo() != null) {
            line.put("handle", result.getExtraInfo());
            line.put("popTime", result.getPopTime());
        }
    }
}
