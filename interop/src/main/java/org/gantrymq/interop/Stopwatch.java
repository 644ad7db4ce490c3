package org.gantrymq.interop;

/** Runs from its making. */
final class Stopwatch {
    private final long begin = System.nanoTime();

    double seconds() {
        return (System.nanoTime() - begin) / 1e9;
    }
}
