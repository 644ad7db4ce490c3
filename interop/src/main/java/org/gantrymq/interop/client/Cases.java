package org.gantrymq.interop.client;

import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** All cases by name: those that can be played beside others, and those that change what all share, one by one. */
public final class Cases {
    private static final long DEADLINE_S = 60;

    private final Map<String, Case> together = new LinkedHashMap<>();
    private final Map<String, Case> alone = new LinkedHashMap<>();

    private Cases() {
    }

    public static Cases all() {
        Cases cases = new Cases();
        RetryCases.add(cases);
        PushCases.add(cases);
        OrderlyCases.add(cases);
        DelayCases.add(cases);
        SharingCases.add(cases);
        RouteCases.add(cases);
        SendCases.add(cases);
        VipCases.add(cases);
        ToolCases.add(cases);
        FeatureCases.add(cases);
        RefusedSendCases.add(cases);
        LiteCases.add(cases);
        QueryCases.add(cases);
        OffsetCases.add(cases);
        TopicAdminCases.add(cases);
        GroupAdminCases.add(cases);
        BrokerAdminCases.add(cases);
        return cases;
    }

    public Set<String> names() {
        Set<String> names = new LinkedHashSet<>(together.keySet());
        names.addAll(alone.keySet());
        return names;
    }

    void add(String name, Case one) {
        put(together, name, one);
    }

    /** A case that sets what the whole broker or name server obeys, or reads what other cases would change. */
    void addAlone(String name, Case one) {
        put(alone, name, one);
    }

    private void put(Map<String, Case> where, String name, Case one) {
        if (names().contains(name)) {
            throw new IllegalArgumentException("two cases are named " + name);
        }
        where.put(name, one);
    }

    public void run(Site site, Set<String> only, int atOnce, Consumer<Map<String, Object>> line) throws Exception {
        play(site, together, only, atOnce, line);
        play(site, alone, only, 1, line);
    }

    private static void play(
        Site site, Map<String, Case> cases, Set<String> only, int atOnce, Consumer<Map<String, Object>> line)
        throws InterruptedException {
        ExecutorService players = Executors.newFixedThreadPool(atOnce);
        cases.forEach((name, one) -> {
            if (only.contains(name)) {
                players.execute(() -> line.accept(play(site, name, one)));
            }
        });
        players.shutdown();
        if (!players.awaitTermination(DEADLINE_S * cases.size(), TimeUnit.SECONDS)) {
            throw new IllegalStateException("cases do not end");
        }
    }

    private static Map<String, Object> play(Site site, String name, Case one) {
        long start = System.nanoTime();
        Scene scene = new Scene(site, name);
        Throwable failure = null;
        try {
            one.play(scene);
        } catch (Exception | Error e) {
            failure = e;
        }
        long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        scene.close();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("case", name);
        line.put("ok", failure == null);
        line.put("facts", scene.facts());
        line.put("error", failure == null ? null : Scene.trace(failure));
        line.put("ms", ms);
        return line;
    }
}
