package org.gantrymq.interop;

/** One thing the harness can do with a store. */
interface Command {
    /** The options it takes, as {@link Options} reads them: {@code --name VALUE} or {@code [--flag]}. */
    String usage();

    /** Does it, and gives the exit code. */
    int run(Options options, JsonLines out) throws Exception;
}
