package org.gantrymq.interop.client;

/** One use of RocketMQ. It reports its results as facts of its scene. An exception means that it could not run. */
interface Case {
    void play(Scene scene) throws Exception;
}
