package org.gantrymq.interop;

import org.apache.rocketmq.common.SystemClock;

/** A clock that stands where it was put. */
final class FixedClock extends SystemClock {
    private volatile long now;

    FixedClock(long now) {
        this.now = now;
    }

    @Override
    public long now() {
        return now;
    }

    void advance(long milliseconds) {
        now += milliseconds;
    }

    /** The clock of {@code --store-time MS}, or null without it. */
    static FixedClock of(Options options) {
        return options.has("store-time") ? new FixedClock(options.number("store-time")) : null;
    }
}
