package org.gantrymq.interop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ's DefaultMessageStore on a directory, loaded and started as a broker does it. */
final class Store {
    /** The options of every command with a store. */
    static final String USAGE = "--store DIR [--set KEY=VALUE]...";

    private final DefaultMessageStore real;

    /**
     * Constructs RocketMQ's object without loading it. The clock gives the store timestamps; null means the system's.
     */
    Store(Options options, SystemClock clock) throws IOException {
        Settings settings = new Settings(options.text("store"), options.all("set"));
        real = new ClockedMessageStore(settings, new BrokerStatsManager(settings.broker), clock);
    }

    /** Loads the store (which recovers it), starts it, and waits until queues and index cover the whole log. */
    static Store open(Options options, SystemClock clock) throws Exception {
        Store store = new Store(options, clock);
        store.load();
        store.start();
        return store;
    }

    static Store open(Options options) throws Exception {
        return open(options, null);
    }

    DefaultMessageStore real() {
        return real;
    }

    void load() throws NotLoadedException {
        if (!real.load()) {
            throw new NotLoadedException();
        }
    }

    void start() throws Exception {
        real.start();
        awaitDispatch();
    }

    void awaitDispatch() throws InterruptedException {
        while (real.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    /** Shuts down cleanly, except with {@code --halt}. */
    void close(Options options) {
        if (!options.has("halt")) {
            shutdown();
        }
    }

    /**
     * Shuts down cleanly without the first three seconds. {@code DefaultMessageStore.shutdown} always sleeps then, and
     * an interrupt ends the sleep. At this point no thread puts messages, and everything is dispatched.
     */
    void shutdown() {
        Thread.currentThread().interrupt();
        real.shutdown();
    }

    /** All consume queues, sorted by topic (in the order of code points) and queue. */
    List<ConsumeQueueInterface> queues() {
        Comparator<String> byCodePoints = (one, other) -> Arrays.compareUnsigned(
            one.getBytes(StandardCharsets.UTF_8), other.getBytes(StandardCharsets.UTF_8));
        return real.getConsumeQueueTable().values().stream()
            .map(Map::values)
            .flatMap(queues -> queues.stream())
            .sorted(Comparator.comparing(ConsumeQueueInterface::getTopic, byCodePoints)
                .thenComparingInt(ConsumeQueueInterface::getQueueId))
            .toList();
    }

    /** The real store with a given clock, from which appends take the store timestamp. */
    private static final class ClockedMessageStore extends DefaultMessageStore {
        private final SystemClock clock;

        ClockedMessageStore(Settings settings, BrokerStatsManager stats, SystemClock clock) throws IOException {
            super(settings.store, stats, (topic, queueId, offset, tagsCode, time, filter, properties) -> {
            }, settings.broker, new ConcurrentHashMap<>());
            this.clock = clock;
        }

        @Override
        public SystemClock getSystemClock() {
            return clock == null ? super.getSystemClock() : clock;
        }
    }
}
