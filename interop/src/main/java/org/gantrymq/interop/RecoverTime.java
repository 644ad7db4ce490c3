package org.gantrymq.interop;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Measures RocketMQ's recovery of a store: constructing it and load(); with {@code --start} also until it is started
 * and dispatch has caught up. Both times are given since the start of the JVM too, to compare processes. The store is
 * left as after a kill.
 */
final class RecoverTime implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " [--start]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        Stopwatch watch = new Stopwatch();
        Store store = new Store(options, null);
        store.load();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("loadMillis", watch.seconds() * 1000);
        line.put("loadSinceJvmStartMillis", sinceJvmStartMillis());
        if (options.has("start")) {
            store.start();
            line.put("readyMillis", watch.seconds() * 1000);
            line.put("readySinceJvmStartMillis", sinceJvmStartMillis());
        }
        line.put("maxPhyOffset", store.real().getMaxPhyOffset());
        line.put("rssAnonMib", rssAnonMib());
        out.line(line);
        return 0;
    }

    /** The memory of this process without the page cache. */
    private static double rssAnonMib() throws IOException {
        for (String status : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (status.startsWith("RssAnon:")) {
                return Long.parseLong(status.replaceAll("\\D", "")) / 1024.0;
            }
        }
        return Double.NaN;
    }

    private static long sinceJvmStartMillis() {
        return System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime();
    }
}
