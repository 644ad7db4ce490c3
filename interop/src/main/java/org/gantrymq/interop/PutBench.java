package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Measures how fast RocketMQ acknowledges plain messages (a tag, a key, a UNIQ_KEY), and when all of them are
 * dispatched to queues and index. The time includes making each message, as in a producer in the same process. {@code
 * --warm-up} messages are put and dispatched before the measurement.
 */
final class PutBench implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " [--count N] [--threads N] [--body-size BYTES] [--topics NAME:N,...] [--warm-up N]"
            + " [--random-bodies] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        long count = options.number("count", 1_000_000);
        int threads = options.integer("threads", 2);
        int bodySize = options.integer("body-size", 1024);
        Store store = Store.open(options);
        Queues queues = new Queues(options.text("topics", "bench:4"), false);
        Workload workload = options.has("random-bodies")
            ? new PlainWorkload(1, queues, bodySize) : new BenchWorkload(queues, bodySize);
        try (AckFile none = new AckFile(null)) {
            new Writers(store, workload, options.number("warm-up", 0), none, null, 0).run(threads);
            store.awaitDispatch();
            Writers writers = new Writers(store, workload, count, none, null, 0);
            Stopwatch watch = new Stopwatch();
            writers.run(threads);
            double put = watch.seconds();
            store.awaitDispatch();
            double dispatched = watch.seconds();
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("count", count);
            line.put("threads", threads);
            line.put("bodySize", bodySize);
            line.put("acknowledged", writers.acknowledged());
            line.put("statuses", writers.statuses());
            line.put("putSeconds", put);
            line.put("putPerSecond", writers.acknowledged() / put);
            line.put("dispatchedSeconds", dispatched);
            line.put("dispatchedPerSecond", writers.acknowledged() / dispatched);
            out.line(line);
            out.flush();
        }
        store.close(options);
        return 0;
    }
}
