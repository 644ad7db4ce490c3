package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;

/** Prepares a message with a delay level as the broker does before the store sees it. */
final class DelayLevel {
    private DelayLevel() {
    }

    /**
     * Moves it to the delay topic and stores its own topic and queue in properties. A level above the highest counts as
     * the highest.
     */
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
