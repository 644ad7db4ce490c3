package org.gantrymq.interop;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** One call of the store: a message, or a batch of messages that differ only in flag, body and properties. */
record Put(MessageExtBrokerInner message, List<byte[]> bodies) {

    /** A single message. Its properties are stored in the order of the map. */
    static Put single(MessageExtBrokerInner message) {
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return new Put(message, List.of(message.getBody()));
    }

    static Put batch(MessageExtBatch batch, List<Message> messages) {
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return new Put(batch, messages.stream().map(Message::getBody).toList());
    }

    static void setProperties(Message message, Map<String, String> properties) {
        MessageAccessor.setProperties(message, properties);
    }

    PutMessageResult into(DefaultMessageStore store) {
        return message instanceof MessageExtBatch batch ? store.putMessages(batch) : store.putMessage(message);
    }
}
