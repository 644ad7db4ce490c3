package org.gantrymq.interop.client;

import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** All cases by name: those that can run concurrently, and those that change shared state and run one at a time. */
public final class Cases {
    private static final long DEADLINE_S = 60;

    private final Map<String, Case> together = new LinkedHashMap<>();
    private final Map<String, Case> alone = new LinkedHashMap<>();

    private Cases() {
    }

    public static Cases all() {
        Cases cases = new Cases();
        // First the cases whose clients or brokers wait for ten seconds or more.
        OffsetCases.add(cases);
        GroupAdminCases.add(cases);
        FeatureCases.add(cases);
        RetryCases.add(cases);
        PushCases.add(cases);
        OrderlyCases.add(cases);
        DelayCases.add(cases);
        SharingCases.add(cases);
        RouteCases.add(cases);
        SendCases.add(cases);
        VipCases.add(cases);
        ToolCases.add(cases);
        RefusedSendCases.add(cases);
        LiteCases.add(cases);
        QueryCases.add(cases);
        TopicAdminCases.add(cases);
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

    /** Adds a case that changes settings of the whole broker or name server, or reads what other cases would change. */
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
        // Clients take a second to shut down, so a case closes while the next one runs.
        ExecutorService leaving = Executors.newCachedThreadPool();
        cases.forEach((name, one) -> {
            if (only.contains(name)) {
                players.execute(() -> {
                    Scene scene = new Scene(site, name);
                    Map<String, Object> found = play(scene, name, one);
                    leaving.execute(scene::close);
                    line.accept(found);
                });
            }
        });
        for (ExecutorService one : List.of(players, leaving)) {
            one.shutdown();
            if (!one.awaitTermination(DEADLINE_S * cases.size(), TimeUnit.SECONDS)) {
                throw new IllegalStateException("cases do not end");
            }
        }
    }

    private static Map<String, Object> play(Scene scene, String name, Case one) {
        long start = System.nanoTime();
        Throwable failure = null;
        try {
            one.play(scene);
        } catch (Exception | Error e) {
            failure = e;
        }
        long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("case", name);
        line.put("ok", failure == null);
        line.put("facts", scene.facts());
        line.put("error", failure == null ? null : Scene.trace(failure));
        line.put("ms", ms);
        return line;
    }
}
