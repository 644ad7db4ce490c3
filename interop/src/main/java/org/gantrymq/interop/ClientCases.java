package org.gantrymq.interop;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.gantrymq.interop.client.Cases;
import org.gantrymq.interop.client.Site;

/**
 * Many small uses of the real client and of DefaultMQAdminExt against a name server and its one broker. Prints a line
 * {@code {"case":…,"ok":…,"facts":{…},"error":…,"ms":…}} for each. Facts contain no port, id or time, so that two
 * brokers can be compared.
 */
final class ClientCases implements Command {
    private static final int AT_ONCE = 12;

    @Override
    public String usage() {
        return "--namesrv ADDRESS [--only NAMES] [--at-once COUNT] [--binary] [--list]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        // By default a client looks for the queues of its retry topic only every twenty seconds.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1500");
        System.setProperty("rocketmq.client.rebalance.minInterval", "50");
        if (options.has("binary")) {
            System.setProperty("rocketmq.serialize.type", "ROCKETMQ");
        }
        Cases cases = Cases.all();
        if (options.has("list")) {
            cases.names().forEach(name -> out.line(Map.of("case", name)));
            return 0;
        }
        Set<String> only = options.has("only") ? Set.of(options.text("only").split(",")) : cases.names();
        List<String> unknown = only.stream().filter(name -> !cases.names().contains(name)).toList();
        if (!unknown.isEmpty()) {
            throw new UsageException("no such cases: " + unknown);
        }
        try (Site site = new Site(options.text("namesrv"))) {
            cases.run(site, only, options.integer("at-once", AT_ONCE), line -> {
                out.line(line);
                out.flush();
            });
        }
        return 0;
    }
}
