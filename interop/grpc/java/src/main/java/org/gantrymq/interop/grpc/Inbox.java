package org.gantrymq.interop.grpc;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Notes every message, and fails those whose delivery attempt is at most {@code fail}. */
final class Inbox implements MessageListener {
    private final int fail;
    private final List<Map<String, Object>> lines = new ArrayList<>();

    Inbox(int fail) {
        this.fail = fail;
    }

    @Override
    public synchronized ConsumeResult consume(MessageView message) {
        lines.add(Lines.of(message));
        notifyAll();
        return message.getDeliveryAttempt() <= fail ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
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
