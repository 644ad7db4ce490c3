package org.gantrymq.interop.client;

/** One use of RocketMQ. It says what it found through its scene; an exception means that it could not be played. */
interface Case {
    void play(Scene scene) throws Exception;
}
