package org.gantrymq.interop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/**
 * Messages that use everything a record can contain: flags, hosts, transactions, compression, delay, batches and
 * unusual properties.
 */
final class MixedWorkload extends Workload {
    private final int lastDelayLevel;

    MixedWorkload(long seed, Queues queues, int bodySize, int lastDelayLevel) {
        super(seed, queues, bodySize);
        this.lastDelayLevel = lastDelayLevel;
    }

    @Override
    List<Put> group(Random random, long first, int size) {
        if (random.nextInt(12) == 0) {
            return List.of(batch(random, first, size));
        }
        List<Put> puts = new ArrayList<>();
        for (long number = first; number < first + size; number++) {
            puts.add(single(random, number));
        }
        return puts;
    }

    private Put single(Random random, long number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        envelope(random, message);
        message.setFlag(flag(random));
        message.setReconsumeTimes(random.nextInt(5) == 0 ? random.nextInt(17) : 0);
        message.setBody(Oddities.body(random, bodySize));
        if (random.nextInt(10) == 0) {
            compress(random, message);
        }
        if (random.nextInt(50) == 0) {
            message.setSysFlag(message.getSysFlag() | MessageSysFlag.MULTI_TAGS_FLAG);
        }
        Put.setProperties(message, Oddities.properties(random, number));
        int chance = random.nextInt(100);
        if (chance < 8) {
            int type = List.of(MessageSysFlag.TRANSACTION_PREPARED_TYPE, MessageSysFlag.TRANSACTION_COMMIT_TYPE,
                MessageSysFlag.TRANSACTION_ROLLBACK_TYPE).get(random.nextInt(3));
            message.setSysFlag(message.getSysFlag() | type);
            message.setPreparedTransactionOffset(random.nextLong() >>> 20);
        } else if (chance < 12) {
            DelayLevel.schedule(message, 1 + random.nextInt(lastDelayLevel), lastDelayLevel);
        }
        Put put = Put.single(message);
        return random.nextInt(40) == 0 ? withoutLastSeparator(put) : put;
    }

    private Put batch(Random random, long first, int size) {
        MessageExtBatch batch = new MessageExtBatch();
        envelope(random, batch);
        List<Message> messages = new ArrayList<>();
        for (long number = first; number < first + size; number++) {
            Map<String, String> properties = Oddities.properties(random, number);
            Message message = new Message(batch.getTopic(), Oddities.body(random, bodySize));
            message.setFlag(flag(random));
            Put.setProperties(message, properties);
            messages.add(message);
        }
        return Put.batch(batch, messages);
    }

    private void envelope(Random random, MessageExtBrokerInner message) {
        Queues.Queue queue = queues.any(random);
        message.setTopic(queue.topic());
        message.setQueueId(queue.id());
        message.setBornTimestamp(PlainWorkload.FIRST_BORN_MS + random.nextInt(3_600_000));
        message.setBornHost(Oddities.host(random));
        message.setStoreHost(Oddities.host(random));
    }

    private static int flag(Random random) {
        return random.nextInt(4) == 0 ? random.nextInt() : random.nextInt(4);
    }

    private static void compress(Random random, MessageExtBrokerInner message) {
        CompressionType type = CompressionType.values()[random.nextInt(CompressionType.values().length)];
        try {
            message.setBody(CompressorFactory.getCompressor(type).compress(message.getBody(), 5));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        message.setSysFlag(message.getSysFlag() | MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag());
    }

    /** Encodes all properties as RocketMQ 4.9.8 does. */
    private static Put withoutLastSeparator(Put put) {
        String properties = put.message().getPropertiesString();
        if (!properties.isEmpty()) {
            put.message().setPropertiesString(properties.substring(0, properties.length() - 1));
        }
        return put;
    }
}
