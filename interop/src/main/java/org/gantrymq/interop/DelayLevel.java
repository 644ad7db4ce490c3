package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;

/** What the broker does to a message with a delay level before the store sees it. */
final class DelayLevel {
    private DelayLevel() {
    }

    /** Sends it to the delay topic, its own topic and queue kept in properties; a level above the last is the last. */
    static void schedule(MessageExtBrokerInner message, int level, int lastLevel) {
        int used = Math.min(level, lastLevel);
        Map<String, String> properties = new LinkedHashMap<>(message.getProperties());
        properties.put(MessageConst.PROPERTY_DELAY_TIME_LEVEL, String.valueOf(used));
        properties.put(MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        properties.put(MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
        MessageAccessor.setProperties(message, properties);
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(used - 1);
    }
}
