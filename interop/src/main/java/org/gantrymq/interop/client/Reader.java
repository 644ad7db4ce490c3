package org.gantrymq.interop.client;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The old pull consumer, which sends exactly the pulls that it is told to. */
@SuppressWarnings("deprecation") // a client that people use, deprecated or not
final class Reader implements AutoCloseable {
    private static final int AT_ONCE = 32;

    final DefaultMQPullConsumer consumer;

    Reader(Scene scene) throws Exception {
        this(scene, scene.name("reader"));
    }

    Reader(Scene scene, String group) throws Exception {
        consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(scene.site.namesrv);
        consumer.setBrokerSuspendMaxTimeMillis(5000);
        consumer.start();
    }

    /**
     * The first messages of a queue, after waiting until they are stored. They are read a second time, because each
     * message says where its queue ended when it was read: at the second read that is the same however late the last
     * message arrived.
     */
    List<MessageExt> read(MessageQueue queue, int count) throws Exception {
        readOnce(queue, count);
        return readOnce(queue, count);
    }

    private List<MessageExt> readOnce(MessageQueue queue, int count) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Scene.PATIENCE_MS;
        long offset = 0;
        while (messages.size() < count && System.currentTimeMillis() < deadline) {
            PullResult result = consumer.pullBlockIfNotFound(queue, "*", offset, Math.min(AT_ONCE, count));
            offset = result.getNextBeginOffset();
            if (result.getPullStatus() == PullStatus.FOUND) {
                messages.addAll(result.getMsgFoundList());
            }
        }
        if (messages.size() < count) {
            throw new AssertionError("only " + messages.size() + " of " + count + " messages in " + queue);
        }
        return messages;
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
