package org.gantrymq.interop;

import java.util.Random;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** Plain messages, each with a delay level. Some levels are above the highest. */
final class DelayWorkload extends PlainWorkload {
    private final int lastLevel;

    DelayWorkload(long seed, Queues queues, int bodySize, int lastLevel) {
        super(seed, queues, bodySize);
        this.lastLevel = lastLevel;
    }

    @Override
    MessageExtBrokerInner message(Random random, long number) {
        MessageExtBrokerInner message = super.message(random, number);
        DelayLevel.schedule(message, 1 + random.nextInt(lastLevel + 2), lastLevel);
        return message;
    }
}
