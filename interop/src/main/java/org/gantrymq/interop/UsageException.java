package org.gantrymq.interop;

/** The command line asks for something that is not there. */
final class UsageException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UsageException(String message) {
        super(message);
    }
}
