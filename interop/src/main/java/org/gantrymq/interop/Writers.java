package org.gantrymq.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.store.PutMessageResult;

/** Threads that write a workload into a store and record the acknowledged messages. */
final class Writers {
    private final Store store;
    private final Workload workload;
    private final long count;
    private final AckFile acks;
    private final FixedClock clock;
    private final long clockStep;
    private final AtomicLong nextGroup = new AtomicLong();
    private final AtomicLong acknowledged = new AtomicLong();
    private final Map<String, LongAdder> statuses = new ConcurrentHashMap<>();
    private volatile Throwable failure;

    /** The clock (null: the system's) advances by clockStep before each put. */
    Writers(Store store, Workload workload, long count, AckFile acks, FixedClock clock, long clockStep) {
        this.store = store;
        this.workload = workload;
        this.count = count;
        this.acks = acks;
        this.clock = clock;
        this.clockStep = clockStep;
    }

    /** The number of messages acknowledged so far. */
    long acknowledged() {
        return acknowledged.get();
    }

    /** The number of puts by status. */
    Map<String, Long> statuses() {
        Map<String, Long> counts = new TreeMap<>();
        statuses.forEach((status, count) -> counts.put(status, count.sum()));
        return counts;
    }

    void run(int threads) throws InterruptedException {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(this::write, "writer-" + i);
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
        if (failure != null) {
            throw new IllegalStateException("a writer failed", failure);
        }
    }

    private void write() {
        try {
            for (long group = nextGroup.getAndIncrement(); group * Workload.GROUP < count && failure == null;
                group = nextGroup.getAndIncrement()) {
                int size = (int) Math.min(Workload.GROUP, count - group * Workload.GROUP);
                for (Put put : workload.group(group, size)) {
                    put(put);
                }
            }
        } catch (Exception | Error e) {
            failure = e;
        }
    }

    private void put(Put put) throws Exception {
        if (clock != null) {
            clock.advance(clockStep);
        }
        PutMessageResult result = put.into(store.real());
        statuses.computeIfAbsent(result.getPutMessageStatus().name(), status -> new LongAdder()).increment();
        if (result.isOk()) {
            if (acks.wanted()) {
                acks.write(Acknowledgement.lines(put, result));
            }
            acknowledged.addAndGet(put.bodies().size());
        }
    }
}
