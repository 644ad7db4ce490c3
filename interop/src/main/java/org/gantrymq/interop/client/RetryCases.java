package org.gantrymq.interop.client;

import java.util.List;
import java.util.function.Function;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Messages whose first consumption fails, and their retries. */
final class RetryCases {
    private RetryCases() {
    }

    static void add(Cases cases) {
        cases.add("retry-later", RetryCases::later);
        cases.add("retry-with-level", RetryCases::withLevel);
        cases.add("retry-after-exception", RetryCases::afterException);
        cases.add("retry-after-null", RetryCases::afterNull);
        cases.add("retry-keeps-tags", RetryCases::keepsTags);
        cases.add("retry-then-dead", RetryCases::thenDead);
        cases.add("retry-dead-at-once", RetryCases::deadAtOnce);
        cases.add("retry-group-s-limit", RetryCases::groupsLimit);
        cases.add("retry-send-back", RetryCases::sendBack);
        cases.add("retry-send-back-refused", RetryCases::sendBackRefused);
    }

    private static DefaultMQPushConsumer failing(
        Scene scene, String topic, Inbox inbox, int retries, Function<ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus> outcome)
        throws Exception {
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.setMaxReconsumeTimes(retries);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            inbox.put(some);
            return outcome.apply(context);
        });
        consumer.start();
        return consumer;
    }

    private static ConsumeConcurrentlyStatus once(Inbox inbox, ConsumeConcurrentlyStatus first) {
        return inbox.size() == 1 ? first : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    private static List<Object> texts(Scene scene, Inbox inbox) {
        return inbox.messages().stream().map(one -> (Object) SendCases.text(scene, one)).toList();
    }

    private static void later(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        failing(scene, topic, inbox, -1, context -> once(inbox, ConsumeConcurrentlyStatus.RECONSUME_LATER));
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(2);
        scene.fact("deliveries", texts(scene, inbox));
        scene.awaitRoute("%RETRY%" + scene.name("group"));
        scene.fact("retry topic", RouteCases.route(scene, "%RETRY%" + scene.name("group")));
    }

    private static void withLevel(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        failing(scene, topic, inbox, -1, context -> {
            context.setDelayLevelWhenNextConsume(1);
            return once(inbox, ConsumeConcurrentlyStatus.RECONSUME_LATER);
        });
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(2);
        scene.fact("deliveries", texts(scene, inbox));
    }

    private static void afterException(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        failing(scene, topic, inbox, -1, context -> {
            if (inbox.size() == 1) {
                throw new IllegalStateException("on purpose");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(2);
        scene.fact("reconsumed", inbox.of(MessageExt::getReconsumeTimes));
    }

    private static void afterNull(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        failing(scene, topic, inbox, -1, context -> once(inbox, null));
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(2);
        scene.fact("reconsumed", inbox.of(MessageExt::getReconsumeTimes));
    }

    private static void keepsTags(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = scene.push(scene.name("group"));
        consumer.subscribe(topic, "red || blue");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            inbox.put(some);
            return some.get(0).getReconsumeTimes() == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        scene.send(scene.queue(topic, 0), "red", "red");
        scene.send(scene.queue(topic, 0), "green", "green");
        scene.send(scene.queue(topic, 0), "blue", "blue");
        inbox.await(4);
        scene.fact("tags", inbox.messages().stream().map(one -> one.getTags() + one.getReconsumeTimes()).sorted().toList());
    }

    private static void thenDead(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        failing(scene, topic, inbox, 2, context -> ConsumeConcurrentlyStatus.RECONSUME_LATER);
        scene.send(scene.queue(topic, 0), "a", "red");
        inbox.await(3);
        scene.fact("reconsumed", inbox.of(MessageExt::getReconsumeTimes));
        String dlq = "%DLQ%" + scene.name("group");
        scene.awaitRoute(dlq);
        scene.fact("dead letters' topic", RouteCases.route(scene, dlq));
        // The new topic has perm 2 (write) only, so it must be made readable.
        TopicAdminCases.permit(scene, dlq, 6);
        scene.fact("dead", SendCases.text(scene, scene.read(scene.queue(dlq, 0), 1).get(0)));
        // The topic exists before the message.
        scene.fact("dead letters", scene.site.admin.maxOffset(scene.queue(dlq, 0)));
    }

    private static void deadAtOnce(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        Inbox inbox = new Inbox();
        failing(scene, topic, inbox, -1, context -> {
            context.setDelayLevelWhenNextConsume(-1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(1);
        String dlq = "%DLQ%" + scene.name("group");
        scene.awaitRoute(dlq);
        TopicAdminCases.permit(scene, dlq, 6);
        scene.fact("dead", SendCases.text(scene, scene.read(scene.queue(dlq, 0), 1).get(0)));
        scene.fact("deliveries", inbox.size());
    }

    private static void groupsLimit(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.group("group", 1);
        Inbox inbox = new Inbox();
        failing(scene, topic, inbox, 1, context -> ConsumeConcurrentlyStatus.RECONSUME_LATER);
        scene.send(scene.queue(topic, 0), "a");
        inbox.await(2);
        scene.awaitRoute("%DLQ%" + scene.name("group"));
        scene.fact("deliveries", inbox.of(MessageExt::getReconsumeTimes));
    }

    @SuppressWarnings("deprecation")
    private static void sendBack(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        String group = scene.group("group", 3);
        scene.send(scene.queue(topic, 0), "a", "red");
        try (Reader reader = new Reader(scene, group)) {
            MessageExt message = reader.read(scene.queue(topic, 0), 1).get(0);
            reader.consumer.sendMessageBack(message, 1);
        }
        MessageExt again = scene.read(scene.queue("%RETRY%" + group, 0), 1).get(0);
        scene.fact("again", SendCases.text(scene, again));
    }

    @SuppressWarnings("deprecation")
    private static void sendBackRefused(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(scene.name("group"));
        config.setRetryQueueNums(4);
        scene.site.admin.createAndUpdateSubscriptionGroupConfig(scene.site.broker, config);
        scene.send(scene.queue(topic, 0), "a");
        try (Reader reader = new Reader(scene, scene.name("group"))) {
            MessageExt message = reader.read(scene.queue(topic, 0), 1).get(0);
            message.setCommitLogOffset(1L << 40);
            // The client then sends the message itself, to any queue of the retry topic.
            reader.consumer.sendMessageBack(message, 1);
        }
        String retries = "%RETRY%" + scene.name("group");
        scene.awaitRoute(retries);
        scene.fact("route", RouteCases.route(scene, retries));
        scene.await("its coming", () -> {
            long arrived = 0;
            for (int id = 0; id < 4; id++) {
                arrived += scene.site.admin.maxOffset(scene.queue(retries, id));
            }
            return arrived == 1;
        });
    }
}
