package org.gantrymq.interop.grpc;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.Closeable;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The commands of the line protocol (interop/grpc/README.md), and the clients that they made. */
final class Client {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
    private final Map<String, Inbox> inboxes = new ConcurrentHashMap<>();
    private final Map<String, List<Object>> checks = new ConcurrentHashMap<>();
    private final Map<String, Transaction> transactions = new ConcurrentHashMap<>();
    private final Map<Integer, MessageView> messages = new ConcurrentHashMap<>();
    private final AtomicInteger handles = new AtomicInteger();

    Map<String, Object> run(String command, JSONObject request) throws Exception {
        return switch (command) {
            case "producer" -> producer(request);
            case "consumer" -> consumer(request);
            case "push" -> push(request);
            case "send" -> send(request);
            case "end" -> end(request);
            case "checks" -> Map.of("keys", List.copyOf(checks.get(request.getString("client"))));
            case "recall" -> recall(request);
            case "receive" -> receive(request);
            case "ack" -> ack(request);
            case "invisible" -> invisible(request);
            case "inbox" -> Map.of("messages", inboxes.get(request.getString("client"))
                .await(request.getIntValue("count"), request.getLongValue("timeoutMs")));
            case "close" -> close(request);
            default -> throw new IllegalArgumentException(command);
        };
    }

    private Map<String, Object> producer(JSONObject request) throws Exception {
        String name = request.getString("name");
        ProducerBuilder builder = provider.newProducerBuilder().setClientConfiguration(configuration(request));
        JSONArray topics = request.getJSONArray("topics");
        if (topics != null && !topics.isEmpty()) {
            builder.setTopics(topics.toArray(String.class));
        }
        if (request.get("check") != null) {
            List<Object> asked = Collections.synchronizedList(new ArrayList<>());
            checks.put(name, asked);
            builder.setTransactionChecker(message -> {
                asked.add(new TreeSet<>(message.getKeys()));
                return TransactionResolution.valueOf(request.getString("check"));
            });
        }
        clients.put(name, builder.build());
        return Map.of();
    }

    private Map<String, Object> consumer(JSONObject request) throws Exception {
        clients.put(request.getString("name"), provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(request))
            .setConsumerGroup(request.getString("group"))
            .setAwaitDuration(Duration.ofMillis(request.getLongValue("awaitMs")))
            .setSubscriptionExpressions(filters(request))
            .build());
        return Map.of();
    }

    private Map<String, Object> push(JSONObject request) throws Exception {
        String name = request.getString("name");
        Inbox inbox = new Inbox(request.getIntValue("fail"), request.getLongValue("consumeMs"));
        inboxes.put(name, inbox);
        clients.put(name, provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration(request))
            .setConsumerGroup(request.getString("group"))
            .setSubscriptionExpressions(filters(request))
            .setMessageListener(inbox)
            .build());
        return Map.of();
    }

    private Map<String, Object> send(JSONObject request) throws Exception {
        Producer producer = (Producer) clients.get(request.getString("client"));
        String transaction = request.getString("transaction");
        SendReceipt receipt;
        if (transaction == null) {
            receipt = producer.send(Lines.message(request.getJSONObject("message")));
        } else {
            Transaction begun = producer.beginTransaction();
            transactions.put(transaction, begun);
            receipt = producer.send(Lines.message(request.getJSONObject("message")), begun);
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("id", receipt.getMessageId().toString());
        String recall = receipt.getRecallHandle();
        result.put("recall", recall == null || recall.isEmpty() ? null : recall);
        return result;
    }

    private Map<String, Object> end(JSONObject request) throws Exception {
        Transaction begun = transactions.remove(request.getString("transaction"));
        if (request.getString("resolution").equals("COMMIT")) {
            begun.commit();
        } else {
            begun.rollback();
        }
        return Map.of();
    }

    private Map<String, Object> recall(JSONObject request) throws Exception {
        Producer producer = (Producer) clients.get(request.getString("client"));
        return Map.of("id", producer.recallMessage(request.getString("topic"), request.getString("handle"))
            .getMessageId().toString());
    }

    private Map<String, Object> receive(JSONObject request) throws Exception {
        List<Map<String, Object>> lines = new ArrayList<>();
        Duration invisible = Duration.ofMillis(request.getLongValue("invisibleMs"));
        for (MessageView message : consumer(request.getString("client"))
            .receive(request.getIntValue("max"), invisible)) {
            int handle = handles.getAndIncrement();
            messages.put(handle, message);
            Map<String, Object> line = Lines.of(message);
            line.put("handle", handle);
            lines.add(line);
        }
        return Map.of("messages", lines);
    }

    private Map<String, Object> ack(JSONObject request) throws Exception {
        consumer(request.getString("client")).ack(messages.get(request.getIntValue("handle")));
        return Map.of();
    }

    private Map<String, Object> invisible(JSONObject request) throws Exception {
        consumer(request.getString("client")).changeInvisibleDuration(
            messages.get(request.getIntValue("handle")), Duration.ofMillis(request.getLongValue("ms")));
        return Map.of();
    }

    private Map<String, Object> close(JSONObject request) throws Exception {
        clients.remove(request.getString("client")).close();
        return Map.of();
    }

    private SimpleConsumer consumer(String name) {
        return (SimpleConsumer) clients.get(name);
    }

    private static ClientConfiguration configuration(JSONObject request) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(request.getString("endpoints"))
            .setRequestTimeout(Duration.ofSeconds(10))
            .enableSsl(request.getBooleanValue("tls"));
        if (request.get("namespace") != null) {
            builder.setNamespace(request.getString("namespace"));
        }
        if (request.get("accessKey") != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(
                request.getString("accessKey"), request.getString("secretKey")));
        }
        return builder.build();
    }

    private static Map<String, FilterExpression> filters(JSONObject request) {
        Map<String, FilterExpression> filters = new LinkedHashMap<>();
        for (Object each : request.getJSONArray("subscriptions")) {
            JSONObject one = (JSONObject) each;
            filters.put(one.getString("topic"), new FilterExpression(
                one.getString("expression"), FilterExpressionType.valueOf(one.getString("type"))));
        }
        return filters;
    }
}
