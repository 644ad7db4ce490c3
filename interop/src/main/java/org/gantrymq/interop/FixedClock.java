package org.gantrymq.interop;

import org.apache.rocketmq.common.SystemClock;

/** A clock that shows a fixed time. */
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

    /** The clock of {@code --store-time MS}, or null without the option. */
    static FixedClock of(Options options) {
        return options.has("store-time") ? new FixedClock(options.number("store-time")) : null;
    }
}
