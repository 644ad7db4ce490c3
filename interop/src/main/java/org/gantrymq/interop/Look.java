package org.gantrymq.interop;

import java.util.Map;

/**
 * Runs several commands with one start of Java and one opening of the store. It prints what {@code log}, {@code dump},
 * {@code query} and {@code at} print, each behind a line {@code {"part":NAME}}.
 */
final class Look implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " [--log] [--queries FILE] [--questions FILE] [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        if (options.has("log")) {
            out.line(Map.of("part", "log"));
            new Log().run(options, out);
        }
        Store store = Store.open(options);
        out.line(Map.of("part", "dump"));
        Dump.answer(store, out);
        if (options.has("queries")) {
            out.line(Map.of("part", "query"));
            Query.answer(store, options, out);
        }
        if (options.has("questions")) {
            out.line(Map.of("part", "at"));
            At.answer(store, options, out);
        }
        out.flush();
        store.close(options);
        return 0;
    }
}
