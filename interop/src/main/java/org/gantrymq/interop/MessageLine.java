package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/** A stored message as a line of {@code gantrymq store dump} and {@code gantrymq store log}. */
final class MessageLine {
    private final Map<String, Object> fields = new LinkedHashMap<>();

    /** Begins a line with the position of the message. */
    MessageLine(String topic, int queueId, long queueOffset, long phyOffset, int size) {
        fields.put("kind", "message");
        fields.put("topic", topic);
        fields.put("queueId", queueId);
        fields.put("queueOffset", queueOffset);
        fields.put("phyOffset", phyOffset);
        fields.put("size", size);
    }

    MessageLine with(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    Map<String, Object> of(MessageExt message) {
        byte[] body = message.getBody();
        fields.put("flag", message.getFlag());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", Hosts.text(message.getBornHost()));
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("storeHost", Hosts.text(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("bodyCRC", message.getBodyCRC());
        fields.put("properties", message.getProperties() == null ? Map.of() : message.getProperties());
        fields.put("bodyLength", body == null ? 0 : body.length);
        fields.put("bodySha256", Sha256.of(body));
        fields.put("msgId", message.getMsgId());
        return fields;
    }
}
