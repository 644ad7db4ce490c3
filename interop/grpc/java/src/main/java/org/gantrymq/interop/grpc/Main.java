package org.gantrymq.interop.grpc;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads a request from each line of stdin and writes its answer to stdout, in the order in which they are ready. */
public final class Main {
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Client client = new Client();
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = JSON.parseObject(line);
            threads.execute(() -> {
                byte[] answer = (answer(client, request) + "\n").getBytes(StandardCharsets.UTF_8);
                synchronized (out) {
                    out.write(answer, 0, answer.length);
                    out.flush();
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(Client client, JSONObject request) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", request.get("id"));
        try {
            answer.put("result", client.run(request.getString("do"), request));
        } catch (Exception | LinkageError e) {
            answer.put("error", error(e));
        }
        return JSON.toJSONString(answer, JSONWriter.Feature.WriteNulls);
    }

    /** The code is the server's status; it is null where the SDK gave up before it had one. */
    private static Map<String, Object> error(Throwable thrown) {
        Throwable cause = thrown;
        while (cause instanceof ExecutionException && cause.getCause() != null) {
            cause = cause.getCause();
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("type", cause.getClass().getSimpleName());
        Integer code = null;
        for (Throwable one = cause; one != null && code == null; one = one.getCause()) {
            Matcher found = CODE.matcher(String.valueOf(one.getMessage()));
            code = found.find() ? Integer.valueOf(found.group(1)) : null;
        }
        line.put("code", code);
        line.put("message", cause.toString());
        return line;
    }
}
