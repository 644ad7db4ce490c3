package org.gantrymq.interop;

import java.util.List;
import java.util.Random;

/**
 * Messages to write, in groups of {@link #GROUP}. A group depends only on the seed and its number, so the messages are
 * the same whichever thread writes them, at whatever time.
 */
abstract class Workload {
    static final int GROUP = 8;

    protected final Queues queues;
    protected final int bodySize;
    private final long seed;

    Workload(long seed, Queues queues, int bodySize) {
        this.seed = seed;
        this.queues = queues;
        this.bodySize = bodySize;
    }

    static Workload of(String profile, long seed, Queues queues, int bodySize, int lastDelayLevel) {
        return switch (profile) {
            case "plain" -> new PlainWorkload(seed, queues, bodySize);
            case "delay" -> new DelayWorkload(seed, queues, bodySize, lastDelayLevel);
            case "mixed" -> new MixedWorkload(seed, queues, bodySize, lastDelayLevel);
            default -> throw new UsageException("--profile is one of mixed, plain, delay");
        };
    }

    /** The puts of the group that begins with message number*GROUP, {@code size} messages in all. */
    final List<Put> group(long number, int size) {
        Random random = new Random(seed * 0x9E3779B97F4A7C15L + number * 0xD1342543DE82EF95L);
        return group(random, number * GROUP, size);
    }

    abstract List<Put> group(Random random, long first, int size);
}
