package org.gantrymq.interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs RocketMQ's mqadmin for each command line of a file (words separated by blanks), and prints its output. */
final class Mqadmin implements Command {
    private static final long LONGEST_MS = 10_000;

    @Override
    public String usage() {
        return "FILE --namesrv ADDRESS";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, options.text("namesrv"));
        PrintStream before = System.out;
        for (String line : Files.readAllLines(Path.of(options.positional("FILE")))) {
            Stopwatch watch = new Stopwatch();
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream print = new PrintStream(printed, true, StandardCharsets.UTF_8);
            PrintStream errors = System.err;
            System.setOut(print);
            System.setErr(print);
            Thread command = new Thread(() -> MQAdminStartup.main0(line.split(" +"), null));
            command.setDaemon(true); // some commands continue until they are interrupted
            try {
                command.start();
                command.join(LONGEST_MS);
                command.interrupt();
            } finally {
                System.setOut(before);
                System.setErr(errors);
            }
            out.line(Map.of("command", line, "printed", printed.toString(StandardCharsets.UTF_8), "seconds", watch.seconds()));
            out.flush();
        }
        return 0;
    }
}
