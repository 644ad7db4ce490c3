package org.gantrymq.interop;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** The usual messages of producers: a tag, a key, a UNIQ_KEY and a body of one size, round-robin over the queues. */
class PlainWorkload extends Workload {
    private static final InetSocketAddress BORN_HOST = Hosts.parse("10.1.2.3:40000");
    private static final InetSocketAddress STORE_HOST = Hosts.parse("127.0.0.1:10911");
    static final long FIRST_BORN_MS = 1_750_000_000_000L;

    PlainWorkload(long seed, Queues queues, int bodySize) {
        super(seed, queues, bodySize);
    }

    @Override
    List<Put> group(Random random, long first, int size) {
        List<Put> puts = new ArrayList<>();
        for (long number = first; number < first + size; number++) {
            puts.add(Put.single(message(random, number)));
        }
        return puts;
    }

    MessageExtBrokerInner message(Random random, long number) {
        byte[] unique = new byte[16];
        random.nextBytes(unique);
        Map<String, String> properties = new LinkedHashMap<>();
        properties.put(MessageConst.PROPERTY_TAGS, "tag-" + number % 10);
        properties.put(MessageConst.PROPERTY_KEYS, "key-" + number);
        properties.put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, HexFormat.of().withUpperCase().formatHex(unique));
        byte[] body = new byte[bodySize];
        random.nextBytes(body);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        Queues.Queue queue = queues.at(number);
        message.setTopic(queue.topic());
        message.setQueueId(queue.id());
        message.setBody(body);
        message.setBornTimestamp(FIRST_BORN_MS + number);
        message.setBornHost(BORN_HOST);
        message.setStoreHost(STORE_HOST);
        Put.setProperties(message, properties);
        return message;
    }
}
