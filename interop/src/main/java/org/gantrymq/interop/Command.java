package org.gantrymq.interop;

/** One command of this harness. */
interface Command {
    /** Its options, as {@link Options} parses them: {@code --name VALUE} or {@code [--flag]}. */
    String usage();

    /** Runs the command and returns the exit code. */
    int run(Options options, JsonLines out) throws Exception;
}
