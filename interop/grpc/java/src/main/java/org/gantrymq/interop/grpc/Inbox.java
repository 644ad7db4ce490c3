package org.gantrymq.interop.grpc;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Notes every message, takes {@code consumeMs} for it, and fails it if its attempt is at most {@code fail}. */
final class Inbox implements MessageListener {
    private final int fail;
    private final long consumeMs;
    private final List<Map<String, Object>> lines = new ArrayList<>();

    Inbox(int fail, long consumeMs) {
        this.fail = fail;
        this.consumeMs = consumeMs;
    }

    @Override
    public ConsumeResult consume(MessageView message) {
        note(message);
        try {
            Thread.sleep(consumeMs);
        } catch (InterruptedException e) {
            return ConsumeResult.FAILURE;
        }
        return message.getDeliveryAttempt() <= fail ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    private synchronized void note(MessageView message) {
        lines.add(Lines.of(message));
        notifyAll();
    }

    synchronized List<Map<String, Object>> await(int count, long timeoutMs) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        for (long left = timeoutMs; lines.size() < count && left > 0;
            left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())) {
            wait(left);
        }
        return List.copyOf(lines);
    }
}
