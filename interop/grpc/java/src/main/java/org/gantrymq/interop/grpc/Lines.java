package org.gantrymq.interop.grpc;

import com.alibaba.fastjson2.JSONObject;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Messages as JSON. */
final class Lines {
    private Lines() {
    }

    static Map<String, Object> of(MessageView message) {
        byte[] body = bytes(message.getBody());
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", message.getMessageId().toString());
        line.put("topic", message.getTopic());
        line.put("sha256", sha256(body));
        line.put("size", body.length);
        line.put("tag", message.getTag().orElse(null));
        line.put("keys", new TreeSet<>(message.getKeys()));
        line.put("properties", message.getProperties());
        line.put("group", message.getMessageGroup().orElse(null));
        line.put("attempt", message.getDeliveryAttempt());
        line.put("deliverAtMs", message.getDeliveryTimestamp().orElse(null));
        line.put("priority", message.getPriority().orElse(null));
        line.put("atMs", System.currentTimeMillis());
        return line;
    }

    static Message message(JSONObject wanted) {
        byte[] text = wanted.getString("body").getBytes(StandardCharsets.UTF_8);
        MessageBuilder builder = ClientServiceProvider.loadService().newMessageBuilder()
            .setTopic(wanted.getString("topic"))
            .setBody(wanted.get("size") == null ? text : repeated(text, wanted.getIntValue("size")));
        if (wanted.get("tag") != null) {
            builder.setTag(wanted.getString("tag"));
        }
        if (wanted.getJSONArray("keys") != null) {
            builder.setKeys(wanted.getJSONArray("keys").toArray(String.class));
        }
        if (wanted.getJSONObject("properties") != null) {
            wanted.getJSONObject("properties").forEach((key, value) -> builder.addProperty(key, value.toString()));
        }
        if (wanted.get("group") != null) {
            builder.setMessageGroup(wanted.getString("group"));
        }
        if (wanted.get("deliverAtMs") != null) {
            builder.setDeliveryTimestamp(wanted.getLongValue("deliverAtMs"));
        }
        if (wanted.get("priority") != null) {
            builder.setPriority(wanted.getIntValue("priority"));
        }
        return builder.build();
    }

    private static byte[] repeated(byte[] text, int size) {
        byte[] body = new byte[size];
        for (int at = 0; at < size; at += text.length) {
            System.arraycopy(text, 0, body, at, Math.min(text.length, size - at));
        }
        return body;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static String sha256(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
