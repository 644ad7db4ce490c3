package org.gantrymq.interop;

import java.util.Random;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** Plain messages that are cheap to make, because all have the same body. */
final class BenchWorkload extends PlainWorkload {
    private final byte[] body;

    BenchWorkload(Queues queues, int bodySize) {
        super(1, queues, 0);
        body = new byte[bodySize];
        new Random(1).nextBytes(body);
    }

    @Override
    MessageExtBrokerInner message(Random random, long number) {
        MessageExtBrokerInner message = super.message(random, number);
        message.setBody(body);
        return message;
    }
}
