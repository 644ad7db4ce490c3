package org.gantrymq.interop;

/** RocketMQ's {@code load()} returned false. */
final class NotLoadedException extends Exception {
    private static final long serialVersionUID = 1L;
}
