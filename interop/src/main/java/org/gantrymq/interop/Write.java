package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;

/**
 * Writes a workload. It ends with clean (shutdown), halt (everything dispatched, then the process ends and {@code
 * abort} stays), or kill-while-writing (the process ends with exit code 137 while threads put messages; nothing is
 * printed).
 */
final class Write implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " --count N [--seed N] [--threads N] [--profile NAME] [--body-size BYTES] [--topics NAME:N,...]"
            + " [--long-topics] [--ack-file FILE] [--end HOW] [--kill-after N] [--store-time MS [--store-time-step MS]]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        String end = options.text("end", "clean");
        if (!end.matches("clean|halt|kill-while-writing")) {
            throw new UsageException("--end is one of clean, halt, kill-while-writing");
        }
        long count = options.number("count");
        long seed = options.number("seed", 1);
        Queues queues = new Queues(options.text("topics", Queues.DEFAULT), options.has("long-topics"));
        FixedClock clock = FixedClock.of(options);
        Store store = Store.open(options, clock);
        Workload workload = Workload.of(options.text("profile", "mixed"), seed, queues,
            options.integer("body-size", 256), store.real().getMaxDelayLevel());
        try (AckFile acks = new AckFile(options.text("ack-file", null))) {
            Writers writers = new Writers(store, workload, count, acks, clock, options.number("store-time-step", 0));
            if (end.equals("kill-while-writing")) {
                killAfter(options.number("kill-after", count / 4 + new Random(seed).nextInt((int) (count / 2) + 1)), writers);
            }
            writers.run(options.integer("threads", 1));
            store.awaitDispatch();
            out.line(summary(store, writers));
            out.flush();
        }
        if (end.equals("kill-while-writing")) {
            throw new IllegalStateException("everything was written before the kill");
        }
        if (end.equals("clean")) {
            store.shutdown();
        }
        return 0;
    }

    private static Map<String, Object> summary(Store store, Writers writers) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("acknowledged", writers.acknowledged());
        line.put("statuses", writers.statuses());
        line.put("maxPhyOffset", store.real().getMaxPhyOffset());
        return line;
    }

    private static void killAfter(long messages, Writers writers) {
        Thread killer = new Thread(() -> {
            while (writers.acknowledged() < messages) {
                Thread.onSpinWait();
            }
            Home.leave();
            Runtime.getRuntime().halt(137);
        }, "killer");
        killer.setDaemon(true);
        killer.start();
    }
}
