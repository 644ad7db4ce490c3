import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Takes a store over with whatever release is on the class path, prints each message and each answer of the index,
 * and appends.
 *
 * Arguments: DIRECTORY RELEASE COUNT (close|halt) TOPIC/QUEUES … The source compiles with 4.9 to 5.5.
 */
public class TakeOver {
    private static DefaultMessageStore store;

    public static void main(String[] arguments) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(16_384);
        config.setMappedFileSizeConsumeQueue(400);
        config.setMaxHashSlotNum(50);
        config.setMaxIndexNum(200);
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);
        store = open(config);
        if (!store.load()) {
            throw new IllegalStateException("the store is not loaded");
        }
        store.start();
        String[] queues = java.util.Arrays.copyOfRange(arguments, 4, arguments.length);
        awaitDispatch();
        for (String queue : queues) {
            print(queue.split("/")[0], Integer.parseInt(queue.split("/")[1]));
        }
        append(arguments[1], Integer.parseInt(arguments[2]), queues);
        awaitDispatch();
        System.out.flush();
        if (arguments[3].equals("halt")) {
            Runtime.getRuntime().halt(0);
        }
        store.shutdown();
        System.exit(0);
    }

    /** The constructor takes a table of topics since 5.0. */
    private static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        MessageArrivingListener listener = (topic, queue, offset, code, time, bits, properties) -> { };
        BrokerStatsManager stats = new BrokerStatsManager("c", true);
        for (var constructor : DefaultMessageStore.class.getConstructors()) {
            if (constructor.getParameterCount() == 5) {
                return (DefaultMessageStore) constructor.newInstance(
                    config, stats, listener, new BrokerConfig(), new ConcurrentHashMap<>());
            }
        }
        return (DefaultMessageStore) DefaultMessageStore.class.getConstructors()[0].newInstance(
            config, stats, listener, new BrokerConfig());
    }

    private static void awaitDispatch() throws Exception {
        for (int turn = 0; store.dispatchBehindBytes() > 0; turn++) {
            if (turn == 2_000) {
                throw new IllegalStateException("dispatch stays behind");
            }
            Thread.sleep(10);
        }
        Thread.sleep(300); // the index is built behind the queues
    }

    private static void print(String topic, int queue) throws Exception {
        long end = store.getMaxOffsetInQueue(topic, queue);
        for (long offset = store.getMinOffsetInQueue(topic, queue); offset < end; offset++) {
            GetMessageResult result = store.getMessage("group", topic, queue, offset, 1, null);
            String body = "missing";
            String indexed = "";
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                MessageExt message = MessageDecoder.decode(buffer.slice());
                body = new String(message.getBody(), StandardCharsets.UTF_8);
                indexed = message.getKeys() + " " + isIndexed(topic, message);
            }
            result.release();
            System.out.println(topic + " " + queue + " " + offset + " " + body + " " + indexed);
        }
    }

    private static boolean isIndexed(String topic, MessageExt message) {
        boolean is = false;
        QueryMessageResult answer = store.queryMessage(topic, message.getKeys(), 64, 0, Long.MAX_VALUE);
        for (ByteBuffer buffer : answer.getMessageBufferList()) {
            is |= MessageDecoder.decode(buffer.slice()).getCommitLogOffset() == message.getCommitLogOffset();
        }
        answer.release();
        return is;
    }

    private static void append(String release, int count, String[] queues) {
        for (String queue : queues) {
            for (int number = 0; number < count; number++) {
                check(store.putMessage(message(new MessageExtBrokerInner(), release, number, queue)));
            }
            List<Message> batch = new ArrayList<>();
            for (int number = count; number < count + 3; number++) {
                batch.add(message(new Message(), release, number, queue));
            }
            MessageExtBatch whole = new MessageExtBatch();
            whole.setTopic(queue.split("/")[0]);
            whole.setQueueId(Integer.parseInt(queue.split("/")[1]));
            whole.setBody(MessageDecoder.encodeMessages(batch));
            whole.setBornTimestamp(System.currentTimeMillis());
            whole.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            whole.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
            check(store.putMessages(whole));
        }
    }

    private static <M extends Message> M message(M message, String release, int number, String queue) {
        message.setTopic(queue.split("/")[0]);
        message.setBody((release + "-" + number).getBytes(StandardCharsets.UTF_8));
        message.setTags(number % 2 == 0 ? "even" : "odd");
        message.setKeys(release + "-" + number + "-" + queue);
        if (message instanceof MessageExtBrokerInner) {
            MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
            inner.setQueueId(Integer.parseInt(queue.split("/")[1]));
            inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, message.getTags()));
            inner.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            inner.setBornTimestamp(System.currentTimeMillis());
            inner.setBornHost(new InetSocketAddress("127.0.0.1", 1));
            inner.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        }
        return message;
    }

    private static void check(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("put: " + result.getPutMessageStatus());
        }
    }
}
