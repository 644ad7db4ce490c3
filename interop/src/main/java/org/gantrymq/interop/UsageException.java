package org.gantrymq.interop;

/** The command line names an unknown command, option or value. */
final class UsageException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UsageException(String message) {
        super(message);
    }
}
