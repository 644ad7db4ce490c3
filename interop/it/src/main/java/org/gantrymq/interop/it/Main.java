package org.gantrymq.interop.it;

import com.alibaba.fastjson2.JSON;
import java.io.PrintStream;
import java.lang.reflect.Modifier;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.jar.JarFile;
import org.apache.rocketmq.test.base.IntegrationTestBase;
import org.junit.Ignore;
import org.junit.Test;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * RocketMQ's integration tests by JUnit 4, a JSON line for each on stdout; what the tests print goes to stderr.
 *
 * <p>Without arguments: the names of all there are, {@code Class#method} without the package's common beginning. With
 * arguments: those are run, one after the other, against the brokers of {@code -Dit.namesrv=ADDRESS}.
 */
public final class Main {
    private static final String PACKAGE = "org.apache.rocketmq.test.";

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        if (arguments.length == 0) {
            for (String name : names()) {
                out.println(JSON.toJSONString(Map.of("test", name)));
            }
        }
        for (String name : arguments) {
            out.println(JSON.toJSONString(run(name)));
            out.flush();
        }
        out.flush();
        Runtime.getRuntime().halt(0); // clients leave threads behind
    }

    private static List<String> names() throws Exception {
        Path jar = Path.of(IntegrationTestBase.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        List<String> names = new ArrayList<>();
        try (JarFile file = new JarFile(jar.toFile())) {
            List<String> classes = file.stream().map(entry -> entry.getName().replace('/', '.'))
                .filter(name -> name.startsWith(PACKAGE) && name.endsWith(".class") && !name.contains("$"))
                .map(name -> name.substring(0, name.length() - ".class".length())).sorted().toList();
            for (String name : classes) {
                names.addAll(tests(Class.forName(name, false, Main.class.getClassLoader())));
            }
        }
        return names;
    }

    private static List<String> tests(Class<?> type) {
        if (Modifier.isAbstract(type.getModifiers()) || type.isAnnotationPresent(Ignore.class)) {
            return List.of();
        }
        return java.util.Arrays.stream(type.getMethods())
            .filter(method -> method.isAnnotationPresent(Test.class) && !method.isAnnotationPresent(Ignore.class))
            .map(method -> type.getName().substring(PACKAGE.length()) + "#" + method.getName()).sorted().toList();
    }

    /** Of a class with parameters: the method with each set of them, {@code method[0]} and so on. */
    private static Filter method(String name) {
        return new Filter() {
            @Override
            public boolean shouldRun(Description description) {
                if (!description.isTest()) {
                    return description.getChildren().stream().anyMatch(this::shouldRun);
                }
                String method = description.getMethodName();
                return method.equals(name) || method.startsWith(name + "[");
            }

            @Override
            public String describe() {
                return name;
            }
        };
    }

    private static Map<String, Object> run(String name) throws Exception {
        String[] parts = name.split("#", 2);
        JUnitCore junit = new JUnitCore();
        List<String> ran = new ArrayList<>();
        junit.addListener(new RunListener() {
            @Override
            public void testStarted(Description description) {
                ran.add(description.getDisplayName());
            }
        });
        long start = System.nanoTime();
        Result result = junit.run(Request.aClass(Class.forName(PACKAGE + parts[0])).filterWith(method(parts[1])));
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("test", name);
        line.put("ok", result.wasSuccessful() && !ran.isEmpty());
        line.put("ms", (System.nanoTime() - start) / 1_000_000);
        List<String> errors = new ArrayList<>();
        for (Failure failure : result.getFailures()) {
            String trace = failure.getTrace();
            System.err.println(name + ": " + trace);
            errors.add(trace.substring(0, Math.min(trace.length(), 600)));
        }
        line.put("error", String.join("\n", errors));
        return line;
    }
}
