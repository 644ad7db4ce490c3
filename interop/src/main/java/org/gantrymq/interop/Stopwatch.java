package org.gantrymq.interop;

/** Measures the time since its construction. */
final class Stopwatch {
    private final long begin = System.nanoTime();

    double seconds() {
        return (System.nanoTime() - begin) / 1e9;
    }
}
