package org.gantrymq.interop.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MQPullConsumerScheduleService;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByRandom;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Other features of producers and consumers. */
@SuppressWarnings("deprecation") // what people still use, deprecated or not
final class FeatureCases {
    private FeatureCases() {
    }

    static void add(Cases cases) {
        cases.add("orderly-committed-by-hand", FeatureCases::byHand);
        cases.add("push-queues-of-the-broker", FeatureCases::brokerAllocates);
        cases.add("push-traced", FeatureCases::traced);
        cases.add("push-unit-mode", FeatureCases::unitMode);
        cases.add("push-subscribed-later", FeatureCases::subscribedLater);
        cases.add("push-asks-as-an-admin", FeatureCases::asks);
        cases.add("sharing-by-hash", FeatureCases::byHash);
        cases.add("sharing-by-configuration", FeatureCases::byConfiguration);
        cases.add("pull-scheduled", FeatureCases::scheduled);
        cases.add("pull-old-consumer", FeatureCases::oldPull);
        cases.add("lite-broadcast", FeatureCases::liteBroadcast);
        cases.add("lite-listener", FeatureCases::liteListener);
        cases.add("send-selectors-and-queues", FeatureCases::selectors);
        cases.add("send-fault-tolerant", FeatureCases::faultTolerant);
        cases.add("request-by-callback", FeatureCases::requestCallback);
        cases.add("recall-refused", FeatureCases::recall);
    }

    private static void byHand(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 6);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(topic, "*");
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.registerMessageListener((MessageListenerOrderly) (some, context) -> {
            context.setAutoCommit(false);
            inbox.put(some);
            return switch (inbox.size()) {
                case 2, 8 -> ConsumeOrderlyStatus.COMMIT;
                case 4 -> ConsumeOrderlyStatus.ROLLBACK;
                default -> ConsumeOrderlyStatus.SUCCESS;
            };
        });
        consumer.start();
        inbox.await(8);
        scene.fact("bodies", inbox.inOrder());
        scene.awaitOffset(() -> scene.site.admin.examineConsumeStats(scene.site.broker, scene.name("group"), topic,
            10_000).computeTotalDiff() == 0);
    }

    private static void brokerAllocates(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        for (int id = 0; id < 4; id++) {
            scene.fill(scene.queue(topic, id), "q" + id, 2);
        }
        Inbox inbox = new Inbox();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
            consumer.setClientRebalance(false);
            consumer.subscribe(topic, "*");
            inbox.listen(consumer);
            consumer.start();
        }
        scene.await("all", () -> Set.copyOf(inbox.inOrder()).size() == 8);
        scene.fact("bodies", inbox.bodies().distinct().sorted().toList());
    }

    private static void traced(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String traces = scene.topic("traces", 1);
        scene.fill(scene.queue(topic, 0), "m", 1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(scene.name("group"), true, traces);
        consumer.setNamesrvAddr(scene.site.namesrv);
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        scene.atEnd(consumer::shutdown);
        consumer.start();
        inbox.await(1);
        scene.await("traces", () -> scene.site.admin.maxOffset(scene.queue(traces, 0)) > 0);
        String trace = Inbox.body(scene.read(scene.queue(traces, 0), 1).get(0));
        scene.fact("before", trace.startsWith("SubBefore"));
    }

    private static void unitMode(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.fill(scene.queue(topic, 0), "m", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setUnitMode(true);
        consumer.setUnitName("unit");
        consumer.subscribe(topic, "*");
        inbox.listen(consumer);
        consumer.start();
        inbox.await(1);
        scene.fact("bodies", inbox.sorted());
        String retry = "%RETRY%" + scene.name("group");
        scene.awaitRoute(retry);
        scene.fact("flag", scene.site.admin.examineTopicConfig(scene.site.broker, retry).getTopicSysFlag());
        DefaultMQProducer producer = scene.producer("units", one -> {
            one.setUnitMode(true);
            one.setUnitName("unit");
        });
        scene.fact("sent", producer.send(new Message(topic, SendCases.bytes("unit")), scene.queue(topic, 0)).getSendStatus().name());
    }

    private static void subscribedLater(Scene scene) throws Exception {
        String one = scene.topic("one", 1);
        String two = scene.topic("two", 1);
        scene.fill(scene.queue(one, 0), "a", 2);
        scene.fill(scene.queue(two, 0), "b", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"), one, inbox);
        inbox.await(2);
        consumer.subscribe(two, "*");
        inbox.await(4);
        scene.fact("bodies", inbox.sorted());
    }

    private static void asks(Scene scene) throws Exception {
        String topic = scene.topic("one", 2);
        scene.fill(scene.queue(topic, 1), "m", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"), topic, inbox);
        inbox.await(1);
        MessageExt message = inbox.messages().get(0);
        scene.fact("queues", consumer.fetchSubscribeMessageQueues(topic).stream().map(MessageQueue::getQueueId).sorted().toList());
        MessageQueue queue = scene.queue(topic, 1);
        scene.fact("offsets", consumer.minOffset(queue) + " to " + consumer.maxOffset(queue));
        scene.fact("earliest", consumer.earliestMsgStoreTime(queue) == message.getStoreTimestamp());
        scene.fact("by time", consumer.searchOffset(queue, message.getStoreTimestamp() + 1000));
        scene.fact("by id", Inbox.body(consumer.viewMessage(topic, message.getMsgId())));
        scene.fact("by the other id", Inbox.body(consumer.viewMessage(topic,
            ((org.apache.rocketmq.common.message.MessageClientExt) message).getOffsetMsgId())));
    }

    private static void byHash(Scene scene) throws Exception {
        shared(scene, List.of(new AllocateMessageQueueConsistentHash(), new AllocateMessageQueueConsistentHash()));
    }

    private static void byConfiguration(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        AllocateMessageQueueByConfig first = new AllocateMessageQueueByConfig();
        first.setMessageQueueList(List.of(scene.queue(topic, 0), scene.queue(topic, 1)));
        AllocateMessageQueueByConfig second = new AllocateMessageQueueByConfig();
        second.setMessageQueueList(List.of(scene.queue(topic, 2), scene.queue(topic, 3)));
        shared(scene, List.of(first, second));
    }

    private static void shared(
        Scene scene, List<? extends org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy> strategies)
        throws Exception {
        String topic = scene.topic("four", 4);
        for (int id = 0; id < 4; id++) {
            scene.fill(scene.queue(topic, id), "q" + id, 2);
        }
        Inbox inbox = new Inbox();
        for (var strategy : strategies) {
            DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
            consumer.setAllocateMessageQueueStrategy(strategy);
            consumer.subscribe(topic, "*");
            inbox.listen(consumer);
            consumer.start();
        }
        scene.await("all", () -> Set.copyOf(inbox.inOrder()).size() == 8);
        scene.fact("bodies", inbox.bodies().distinct().sorted().toList());
    }

    private static void scheduled(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        scene.fill(scene.queue(topic, 0), "a", 2);
        scene.fill(scene.queue(topic, 1), "b", 2);
        Inbox inbox = new Inbox();
        MQPullConsumerScheduleService service = new MQPullConsumerScheduleService(scene.name("group"));
        service.getDefaultMQPullConsumer().setNamesrvAddr(scene.site.namesrv);
        service.getDefaultMQPullConsumer().setMessageModel(MessageModel.CLUSTERING);
        service.registerPullTaskCallback(topic, (queue, context) -> {
            try {
                DefaultMQPullConsumer consumer = (DefaultMQPullConsumer) context.getPullConsumer();
                long offset = Math.max(0, consumer.fetchConsumeOffset(queue, false));
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getMsgFoundList() != null) {
                    inbox.put(result.getMsgFoundList());
                }
                consumer.updateConsumeOffset(queue, result.getNextBeginOffset());
                context.setPullNextDelayTimeMillis(100);
            } catch (Exception e) {
                context.setPullNextDelayTimeMillis(200);
            }
        });
        scene.atEnd(service::shutdown);
        service.start();
        inbox.await(4);
        scene.fact("bodies", inbox.sorted());
    }

    private static void oldPull(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        scene.fill(scene.queue(topic, 0), "m", 5);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(scene.name("group"));
        consumer.setNamesrvAddr(scene.site.namesrv);
        consumer.setRegisterTopics(Set.of(topic));
        scene.atEnd(consumer::shutdown);
        consumer.start();
        MessageQueue queue = scene.queue(topic, 0);
        scene.await("what was sent", () -> consumer.maxOffset(queue) == 5);
        scene.await("its queues", () -> consumer.fetchMessageQueuesInBalance(topic).size() == 2);
        CompletableFuture<List<String>> pulled = new CompletableFuture<>();
        consumer.pull(queue, "*", 1, 3, new org.apache.rocketmq.client.consumer.PullCallback() {
            @Override
            public void onSuccess(PullResult result) {
                pulled.complete(result.getMsgFoundList().stream().map(Inbox::body).toList());
            }

            @Override
            public void onException(Throwable e) {
                pulled.completeExceptionally(e);
            }
        });
        scene.fact("pulled", pulled.get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS));
        MessageExt message = consumer.pull(queue, "*", 4, 1).getMsgFoundList().get(0);
        consumer.sendMessageBack(message, 1, "broker-a", scene.name("group"));
        String retry = "%RETRY%" + scene.name("group");
        scene.awaitRoute(retry);
        scene.fact("again", scene.read(scene.queue(retry, 0), 1).stream().map(Inbox::body).toList());
    }

    private static void liteBroadcast(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        scene.fill(scene.queue(topic, 0), "a", 2);
        scene.fill(scene.queue(topic, 1), "b", 2);
        for (int i = 0; i < 2; i++) {
            DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.setInstanceName("broadcast" + i + scene.site.run);
            consumer.subscribe(topic, "*");
            consumer.start();
            List<String> bodies = new ArrayList<>();
            scene.await("all", () -> {
                consumer.poll(200).forEach(one -> bodies.add(Inbox.body(one)));
                return bodies.size() >= 4;
            });
            scene.fact("bodies " + i, bodies.stream().sorted().toList());
        }
    }

    private static void liteListener(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        List<Integer> told = Collections.synchronizedList(new ArrayList<>());
        DefaultLitePullConsumer consumer = scene.lite(scene.name("group"));
        consumer.setTopicMetadataCheckIntervalMillis(100);
        consumer.setSubExpressionForAssign(topic, "red");
        consumer.start();
        consumer.registerTopicMessageQueueChangeListener(topic, (name, queues) -> told.add(queues.size()));
        consumer.assign(List.of(scene.queue(topic, 0)));
        scene.send(scene.queue(topic, 0), "r", "red");
        scene.send(scene.queue(topic, 0), "b", "blue");
        List<String> bodies = new ArrayList<>();
        scene.await("a red one", () -> {
            consumer.poll(200).forEach(one -> bodies.add(Inbox.body(one)));
            return !bodies.isEmpty();
        });
        scene.fact("red", bodies);
        scene.fact("committed", consumer.committed(scene.queue(topic, 1)));
        org.apache.rocketmq.common.TopicConfig more = new org.apache.rocketmq.common.TopicConfig(topic, 3, 3);
        scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, more);
        scene.await("to be told", () -> told.contains(3));
        scene.fact("told", told.get(told.size() - 1));
    }

    private static void selectors(Scene scene) throws Exception {
        String topic = scene.topic("four", 4);
        DefaultMQProducer producer = scene.site.producer;
        Message message = new Message(topic, SendCases.bytes("m"));
        int first = producer.send(message, new SelectMessageQueueByHash(), "shard", 5000).getMessageQueue().getQueueId();
        scene.fact("same queue", first == producer.send(message, new SelectMessageQueueByHash(), "shard").getMessageQueue().getQueueId());
        scene.fact("any queue", producer.send(message, new SelectMessageQueueByRandom(), null).getSendStatus().name());
        producer.sendOneway(message, (queues, one, which) -> queues.get((int) which), 2);
        producer.sendOneway(message, scene.queue(topic, 3));
        scene.await("one-way", () -> {
            long sum = 0;
            for (int id = 0; id < 4; id++) {
                sum += scene.site.admin.maxOffset(scene.queue(topic, id));
            }
            return sum == 5;
        });
        scene.refused("a queue that is not there", () -> producer.send(message, scene.queue(topic, 9), 5000));
        scene.refused("a broker that is not there", () -> producer.send(message, new MessageQueue(topic, "nobody", 0), 5000));
    }

    private static void faultTolerant(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        DefaultMQProducer producer = scene.producer("careful", one -> {
            one.setSendLatencyFaultEnable(true);
            one.setStartDetectorEnable(true);
            one.setRetryAnotherBrokerWhenNotStoreOK(true);
        });
        for (int i = 0; i < 4; i++) {
            scene.fact("sent " + i, producer.send(new Message(topic, SendCases.bytes("m" + i))).getSendStatus().name());
        }
    }

    private static void requestCallback(Scene scene) throws Exception {
        String topic = scene.topic("questions", 1);
        DefaultMQProducer asks = scene.producer("asks", one -> { });
        CompletableFuture<String> failed = new CompletableFuture<>();
        asks.request(new Message(topic, SendCases.bytes("why?")), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                failed.complete("answered");
            }

            @Override
            public void onException(Throwable e) {
                failed.complete(e.getClass().getSimpleName());
            }
        }, 1000);
        scene.fact("in vain", failed.get(Scene.PATIENCE_MS, TimeUnit.MILLISECONDS));
    }

    private static void recall(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String handle = org.apache.rocketmq.common.producer.RecallMessageHandle.HandleV1.buildHandle(
            topic, scene.site.brokerName, String.valueOf(System.currentTimeMillis() + 60_000), "id");
        scene.refused("recall", () -> scene.site.producer.recallMessage(topic, handle));
        scene.refused("no handle", () -> scene.site.producer.recallMessage(topic, "nonsense"));
    }
}
