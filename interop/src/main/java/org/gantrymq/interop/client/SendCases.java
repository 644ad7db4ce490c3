package org.gantrymq.interop.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Messages of every kind, and what a reader receives. */
final class SendCases {
    private static final int MANY = 300;
    /** Properties whose values are ids, times or hosts. */
    private static final List<String> VARYING = List.of("UNIQ_KEY", "ORIGIN_MESSAGE_ID", "CORRELATION_ID",
        "REPLY_TO_CLIENT", "DLQ_ORIGIN_MESSAGE_ID", "CONSUME_START_TIME", "ARRIVE_TIME", "PUSH_REPLY_TIME",
        "BORN_TIMESTAMP", "__BORNHOST", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS");

    private SendCases() {
    }

    static void add(Cases cases) {
        cases.add("send-sync", SendCases::sync);
        cases.add("send-async", SendCases::async);
        cases.add("send-oneway", SendCases::oneway);
        cases.add("send-batch", SendCases::batch);
        cases.add("send-batch-of-many", SendCases::batchOfMany);
        cases.add("send-batch-async-and-chosen-queue", SendCases::batchElsewhere);
        cases.add("send-auto-batch", SendCases::autoBatch);
        cases.add("send-by-selector", SendCases::bySelector);
        cases.add("send-to-chosen-queue", SendCases::toChosenQueue);
        cases.add("send-keys-tags-properties", SendCases::properties);
        cases.add("send-unicode", SendCases::unicode);
        cases.add("send-without-waiting", SendCases::withoutWaiting);
        cases.add("send-big-body", SendCases::bigBody);
        for (CompressionType type : CompressionType.values()) {
            cases.add("send-compressed-" + type.name().toLowerCase(java.util.Locale.ROOT),
                scene -> compressed(scene, type));
        }
        cases.add("send-in-namespace", SendCases::inNamespace);
        cases.add("send-binary-headers", SendCases::binaryHeaders);
        cases.add("send-old-header", SendCases::oldHeader);
        cases.add("send-order-in-a-queue", SendCases::orderInAQueue);
        cases.add("send-traced", SendCases::traced);
        cases.add("request-reply", RequestCases::reply);
        cases.add("request-unanswered", RequestCases::unanswered);
    }

    /** The parts of a result that are the same in every run. */
    static Map<String, Object> text(Scene scene, SendResult result) {
        Map<String, Object> said = new TreeMap<>();
        said.put("status", result.getSendStatus().name());
        said.put("topic", scene.plain(result.getMessageQueue().getTopic()));
        said.put("broker", result.getMessageQueue().getBrokerName());
        said.put("queueOffset", result.getQueueOffset());
        said.put("msgId", Arrays.stream(result.getMsgId().split(",")).map(String::length).toList());
        said.put("offsetMsgId", result.getOffsetMsgId() == null ? null
            : Arrays.stream(result.getOffsetMsgId().split(",")).map(String::length).toList());
        said.put("region", result.getRegionId());
        said.put("traced", result.isTraceOn());
        said.put("transaction", result.getTransactionId() == null ? null : result.getTransactionId().length());
        said.put("recall", String.valueOf(result.getRecallHandle()));
        return said;
    }

    /** The parts of a message that are the same in every run. */
    static Map<String, Object> text(Scene scene, MessageExt message) {
        Map<String, Object> said = new TreeMap<>();
        said.put("topic", scene.plain(message.getTopic()));
        said.put("queue", message.getQueueId() + "@" + message.getQueueOffset());
        said.put("body", scene.plain(Inbox.body(message)));
        said.put("properties", properties(scene, message));
        said.put("reconsumed", message.getReconsumeTimes());
        said.put("flag", message.getFlag());
        said.put("sysFlag", message.getSysFlag());
        said.put("broker", message.getBrokerName());
        said.put("bornHost", message.getBornHostString());
        said.put("prepared", message.getPreparedTransactionOffset());
        return said;
    }

    static Map<String, String> properties(Scene scene, MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.replaceAll((key, value) -> VARYING.contains(key) ? "…" : scene.plain(value));
        return properties;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void sync(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fact("first", text(scene, scene.site.producer.send(new Message(topic, bytes("a")))));
        scene.fact("second", text(scene, scene.site.producer.send(new Message(topic, bytes("b")))));
        scene.fact("read", scene.read(scene.queue(topic, 0), 2).stream().map(one -> text(scene, one)).toList());
    }

    private static void async(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        List<CompletableFuture<SendResult>> sent = new ArrayList<>();
        for (int i = 0; i < MANY; i++) {
            CompletableFuture<SendResult> one = new CompletableFuture<>();
            sent.add(one);
            scene.site.producer.send(new Message(topic, bytes("m" + i)), callback(one));
        }
        long stored = 0;
        for (CompletableFuture<SendResult> one : sent) {
            stored += one.get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS).getSendStatus().name().equals("SEND_OK") ? 1 : 0;
        }
        scene.fact("stored", stored);
        long sum = 0;
        for (int id = 0; id < 4; id++) {
            sum += scene.site.admin.maxOffset(scene.queue(topic, id));
        }
        scene.fact("sum of offsets", sum);
    }

    static SendCallback callback(CompletableFuture<SendResult> future) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable e) {
                future.completeExceptionally(e);
            }
        };
    }

    private static void oneway(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        for (int i = 0; i < 10; i++) {
            scene.site.producer.sendOneway(new Message(topic, bytes("m" + i)));
        }
        scene.fact("read", scene.read(scene.queue(topic, 0), 10).stream().map(Inbox::body).sorted().toList());
    }

    private static void batch(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        List<Message> batch = List.of(new Message(topic, "red", "k1", bytes("a")),
            new Message(topic, "blue", "k2 k3", bytes("b")), new Message(topic, bytes("c")));
        scene.fact("result", text(scene, scene.site.producer.send(batch)));
        scene.fact("read", scene.read(scene.queue(topic, 0), 3).stream().map(one -> text(scene, one)).toList());
    }

    private static void batchOfMany(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        List<Message> batch = IntStream.range(0, MANY).mapToObj(i -> new Message(topic, bytes("m" + i))).toList();
        SendResult result = scene.site.producer.send(batch);
        scene.fact("ids", result.getOffsetMsgId().split(",").length);
        scene.site.producer.send(batch);
        List<MessageExt> read = scene.read(scene.queue(topic, 0), 2 * MANY);
        scene.fact("offsets", IntStream.range(0, 2 * MANY).allMatch(i -> read.get(i).getQueueOffset() == i));
        scene.fact("bodies", IntStream.range(0, 2 * MANY).allMatch(i -> Inbox.body(read.get(i)).equals("m" + i % MANY)));
        scene.fact("id is found", Inbox.body(scene.site.admin.viewMessage(topic, result.getOffsetMsgId().split(",")[7])));
    }

    private static void batchElsewhere(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        List<Message> batch = List.of(new Message(topic, bytes("a")), new Message(topic, bytes("b")));
        scene.fact("chosen", text(scene, scene.site.producer.send(batch, scene.queue(topic, 1))));
        CompletableFuture<SendResult> future = new CompletableFuture<>();
        List<Message> other = List.of(new Message(topic, bytes("c")), new Message(topic, bytes("d")));
        scene.site.producer.send(other, scene.queue(topic, 1), callback(future));
        scene.fact("async", text(scene, future.get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS)));
        scene.fact("read", scene.read(scene.queue(topic, 1), 4).stream().map(Inbox::body).toList());
    }

    private static void autoBatch(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = scene.producer("auto", one -> one.setAutoBatch(true));
        List<CompletableFuture<SendResult>> sent = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            CompletableFuture<SendResult> one = new CompletableFuture<>();
            sent.add(one);
            producer.send(new Message(topic, bytes("m" + i)), callback(one));
        }
        for (CompletableFuture<SendResult> one : sent) {
            one.get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
        scene.fact("read", scene.read(scene.queue(topic, 0), 20).stream().map(Inbox::body).sorted().toList());
    }

    private static void bySelector(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        List<Integer> queues = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            SendResult result = scene.site.producer.send(new Message(topic, bytes("m" + i)),
                (all, message, arg) -> all.get((Integer) arg % all.size()), i);
            queues.add(result.getMessageQueue().getQueueId());
        }
        scene.fact("queues", queues);
        scene.fact("read", scene.read(scene.queue(topic, 3), 2).stream().map(Inbox::body).toList());
    }

    private static void toChosenQueue(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        scene.fact("result", text(scene, scene.send(scene.queue(topic, 2), "here")));
        List<Long> ends = new ArrayList<>();
        for (int id = 0; id < 4; id++) {
            ends.add(scene.site.admin.maxOffset(scene.queue(topic, id)));
        }
        scene.fact("ends", ends);
    }

    private static void properties(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Message message = new Message(topic, "red", "k1 k2", 7, bytes("a"), true);
        message.putUserProperty("colour", "green = blue; {\"json\": [1]}");
        message.setBuyerId("buyer");
        message.setInstanceId("instance");
        scene.site.producer.send(message);
        scene.fact("read", text(scene, scene.read(scene.queue(topic, 0), 1).get(0)));
    }

    private static void unicode(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Message message = new Message(topic, "größe", "schlüssel 鍵 🔑", bytes("körper 体 🙂"));
        message.putUserProperty("名前", "значение 🙂");
        scene.site.producer.send(message);
        MessageExt read = scene.read(scene.queue(topic, 0), 1).get(0);
        scene.fact("read", text(scene, read));
        scene.await("the key in the index", () -> scene.site.admin.queryMessage(topic, "鍵", 8, 0, Long.MAX_VALUE)
            .getMessageList().size() == 1);
    }

    private static void withoutWaiting(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Message message = new Message(topic, bytes("a"));
        message.setWaitStoreMsgOK(false);
        scene.fact("result", text(scene, scene.site.producer.send(message)));
        scene.fact("read", text(scene, scene.read(scene.queue(topic, 0), 1).get(0)));
    }

    private static void bigBody(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer plain = scene.producer("plain", one -> one.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE));
        byte[] body = new byte[1 << 21];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (i * 31 >>> 3);
        }
        plain.send(new Message(topic, body));
        plain.send(new Message(topic, new byte[1]));
        List<MessageExt> read = scene.read(scene.queue(topic, 0), 2);
        scene.fact("equal", Arrays.equals(body, read.get(0).getBody()));
        scene.fact("sizes", read.stream().map(one -> one.getBody().length).toList());
    }

    private static void compressed(Scene scene, CompressionType type) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = scene.producer("small", one -> {
            one.setCompressMsgBodyOverHowmuch(100);
            one.setCompressType(type);
        });
        String body = "0123456789".repeat(500);
        producer.send(new Message(topic, bytes(body)));
        producer.send(new Message(topic, bytes("short")));
        List<MessageExt> read = scene.read(scene.queue(topic, 0), 2);
        scene.fact("equal", Inbox.body(read.get(0)).equals(body));
        scene.fact("flags", read.stream().map(MessageExt::getSysFlag).toList());
        scene.fact("type", MessageSysFlag.getCompressionType(read.get(0).getSysFlag()));
        scene.fact("stored is smaller", read.get(0).getStoreSize() < 1000);
    }

    @SuppressWarnings("deprecation") // how 4.x clients keep names apart
    private static void inNamespace(Scene scene) throws Exception {
        DefaultMQProducer producer = scene.producer("spaced", one -> one.setNamespace("space"));
        String topic = scene.name("one");
        scene.fact("result", text(scene, producer.send(new Message(topic, bytes("a")))));
        scene.awaitRoute("space%" + topic);
        scene.fact("route", RouteCases.route(scene, "space%" + topic));
    }

    private static void binaryHeaders(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = scene.producer("binary", Hooks.binary(), one -> { });
        Message message = new Message(topic, "red", "k1", bytes("körper"));
        message.putUserProperty("名前", "значение");
        scene.fact("result", text(scene, producer.send(message)));
        scene.fact("batch", text(scene, producer.send(List.of(message, message))));
        scene.fact("read", scene.read(scene.queue(topic, 0), 3).stream().map(one -> text(scene, one)).toList());
        Inbox inbox = new Inbox();
        var consumer = scene.push(scene.name("group"), Hooks.binary());
        consumer.subscribe(topic, "red");
        inbox.listen(consumer);
        consumer.start();
        inbox.await(3);
        scene.fact("consumed", inbox.messages().stream().sorted(Comparator.comparingLong(MessageExt::getQueueOffset))
            .map(one -> text(scene, one)).toList());
        scene.refused("missing", () -> producer.fetchPublishMessageQueues(scene.name("nowhere")));
    }

    private static void oldHeader(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = scene.producer("old", Hooks.firstSendHeader(), one -> { });
        Message message = new Message(topic, "red", "k1", bytes("a"));
        scene.fact("result", text(scene, producer.send(message)));
        scene.fact("read", text(scene, scene.read(scene.queue(topic, 0), 1).get(0)));
    }

    private static void orderInAQueue(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        MessageQueue queue = scene.queue(topic, 0);
        List<CompletableFuture<SendResult>> sent = new ArrayList<>();
        for (int i = 0; i < MANY; i++) {
            CompletableFuture<SendResult> one = new CompletableFuture<>();
            sent.add(one);
            scene.site.producer.send(new Message(topic, bytes("m" + i)), queue, callback(one));
        }
        List<MessageExt> read = scene.read(queue, MANY);
        boolean same = true;
        for (int i = 0; i < MANY; i++) {
            long offset = sent.get(i).get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS).getQueueOffset();
            same &= Inbox.body(read.get((int) offset)).equals("m" + i);
        }
        scene.fact("each where its answer said", same);
        scene.fact("offsets rise", IntStream.range(0, MANY).allMatch(i -> read.get(i).getQueueOffset() == i));
        scene.fact("positions rise", IntStream.range(1, MANY)
            .allMatch(i -> read.get(i).getCommitLogOffset() > read.get(i - 1).getCommitLogOffset()));
    }

    private static void traced(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        DefaultMQProducer producer = scene.producer("traced", one -> {
            one.setEnableTrace(true);
            one.setTraceTopic(scene.name("traces"));
        });
        scene.topic("traces", 1);
        producer.send(new Message(topic, "red", "k1", bytes("a")));
        String[] words = Inbox.body(scene.read(scene.queue(scene.name("traces"), 0), 1).get(0)).split("\u0001");
        scene.fact("kind", words[0]);
        scene.fact("topic", words[4]);
        scene.fact("keys", words[7]);
    }
}
