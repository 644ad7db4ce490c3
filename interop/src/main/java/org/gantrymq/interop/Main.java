package org.gantrymq.interop;

import java.io.IOException;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The real RocketMQ store as a command: {@code Main COMMAND --store DIR [options]}.
 *
 * <p>Answers are JSON lines on stdout, which has no other output. Exit codes: 0 done, 1 the store did not load or an
 * input was rejected, 2 usage, 3 failed (stack trace on stderr).
 */
public final class Main {
    private static final Map<String, Command> COMMANDS = new LinkedHashMap<>();

    static {
        COMMANDS.put("dump", new Dump());
        COMMANDS.put("query", new Query());
        COMMANDS.put("at", new At());
        COMMANDS.put("log", new Log());
        COMMANDS.put("look", new Look());
        COMMANDS.put("clean", new Clean());
        COMMANDS.put("write", new Write());
        COMMANDS.put("ingest", new Ingest());
        COMMANDS.put("recover-time", new RecoverTime());
        COMMANDS.put("put-bench", new PutBench());
        COMMANDS.put("get-bench", new GetBench());
        COMMANDS.put("query-bench", new QueryBench());
        COMMANDS.put("protocol", new Protocol());
        COMMANDS.put("configs", new Configs());
        COMMANDS.put("frames", new Frames());
        COMMANDS.put("cluster", new Cluster());
        COMMANDS.put("namesrv-admin", new NamesrvAdmin());
        COMMANDS.put("send", new Send());
        COMMANDS.put("pull", new Pull());
        COMMANDS.put("client-cases", new ClientCases());
        COMMANDS.put("mqadmin", new Mqadmin());
        COMMANDS.put("load", new Load());
        COMMANDS.put("allocate", new Allocate());
        COMMANDS.put("evaluate-sql", new EvaluateSql());
        COMMANDS.put("consume", new Consume());
        COMMANDS.put("transact", new Transact());
        COMMANDS.put("pop", new Pop());
        COMMANDS.put("request-reply", new RequestReply());
        COMMANDS.put("trace-data", new TraceData());
    }

    private Main() {
    }

    public static void main(String[] args) throws IOException {
        Home.enter();
        JsonLines out = new JsonLines(System.out);
        System.setOut(new PrintStream(System.err, true)); // output of libraries must not mix with our lines
        int code = run(Arrays.asList(args), out);
        out.flush();
        Home.leave();
        System.err.flush();
        Runtime.getRuntime().halt(code); // threads that RocketMQ leaves running would keep the process alive
    }

    private static int run(List<String> args, JsonLines out) {
        Command command = args.isEmpty() ? null : COMMANDS.get(args.get(0));
        if (command == null) {
            return usage("a command is needed, one of " + String.join(", ", COMMANDS.keySet()));
        }
        try {
            return command.run(Options.parse(command.usage(), args.subList(1, args.size())), out);
        } catch (UsageException e) {
            return usage(e.getMessage() + "\nusage: " + args.get(0) + " " + command.usage());
        } catch (NotLoadedException e) {
            out.line(Map.of("kind", "store", "loaded", false));
            return 1;
        } catch (Exception | Error e) {
            e.printStackTrace();
            return 3;
        }
    }

    private static int usage(String message) {
        System.err.println("interop: " + message);
        return 2;
    }
}
