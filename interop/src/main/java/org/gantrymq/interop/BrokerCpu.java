package org.gantrymq.interop;

import java.time.Duration;

/** The CPU time (user and system) of the broker's process, as the operating system counts it. */
final class BrokerCpu {
    private BrokerCpu() {
    }

    /** Microseconds since the start of the process that {@code --broker-pid} names; 0 without that option. */
    static double micros(Options options) {
        if (!options.has("broker-pid")) {
            return 0;
        }
        return ProcessHandle.of(options.number("broker-pid"))
            .flatMap(process -> process.info().totalCpuDuration())
            .map(Duration::toNanos).orElseThrow() / 1e3;
    }
}
