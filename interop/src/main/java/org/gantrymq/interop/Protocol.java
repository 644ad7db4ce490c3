package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.File;
import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.action.RocketMQAction;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.FastCodesHeader;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** Prints the protocol from RocketMQ's remoting classes: codes by name, the fields of headers and bodies. */
final class Protocol implements Command {
    private static final String PACKAGE = "org/apache/rocketmq/remoting/protocol/";

    @Override
    public String usage() {
        return "";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        out.line(Map.of("kind", "codes", "name", "RequestCode", "values", constants(RequestCode.class)));
        out.line(Map.of("kind", "codes", "name", "ResponseCode", "values", constants(ResponseCode.class)));
        Map<String, Integer> languages = new TreeMap<>();
        for (LanguageCode language : LanguageCode.values()) {
            languages.put(language.name(), (int) language.getCode());
        }
        out.line(Map.of("kind", "codes", "name", "LanguageCode", "values", languages));
        Map<String, Integer> versions = new TreeMap<>();
        for (MQVersion.Version version : MQVersion.Version.values()) {
            versions.put(version.name(), version.ordinal());
        }
        out.line(Map.of("kind", "codes", "name", "MQVersion", "values", versions));
        for (Class<?> one : classes()) {
            if (CommandCustomHeader.class.isAssignableFrom(one)) {
                out.line(describe(one));
            } else {
                out.line(body(one));
            }
        }
        return 0;
    }

    private static Map<String, Integer> constants(Class<?> codes) throws IllegalAccessException {
        Map<String, Integer> values = new TreeMap<>();
        for (Field field : codes.getFields()) {
            if (field.getType() == int.class && Modifier.isStatic(field.getModifiers())) {
                values.put(field.getName(), field.getInt(null));
            }
        }
        return values;
    }

    private static List<Class<?>> classes() throws Exception {
        File jar = new File(RequestCode.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        List<Class<?>> found = new ArrayList<>();
        try (JarFile entries = new JarFile(jar)) {
            for (String name : entries.stream().map(entry -> entry.getName()).sorted().toList()) {
                if (!name.startsWith(PACKAGE) || !name.endsWith(".class") || name.contains("$")) {
                    continue;
                }
                Class<?> one = Class.forName(name.substring(0, name.length() - 6).replace('/', '.'));
                if (!Modifier.isAbstract(one.getModifiers()) && !one.isEnum()) {
                    found.add(one);
                }
            }
        }
        return found;
    }

    /** A body's fields with their generic types, and the JSON that fastjson writes for a new object. */
    private static Map<String, Object> body(Class<?> type) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "body");
        line.put("name", type.getSimpleName());
        Map<String, String> fields = new LinkedHashMap<>();
        for (Class<?> level = type; level != Object.class; level = level.getSuperclass()) {
            for (Field field : level.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isTransient(field.getModifiers())) {
                    fields.put(field.getName(), field.getGenericType().getTypeName());
                }
            }
        }
        line.put("fields", fields);
        try {
            Object fresh = type.getDeclaredConstructor().newInstance();
            line.put("json", JSON.toJSONString(fresh, JSONWriter.Feature.WriteNulls));
        } catch (ReflectiveOperationException | RuntimeException e) {
            line.put("json", null); // it has no constructor without arguments
        }
        return line;
    }

    private static Map<String, Object> describe(Class<?> header) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "header");
        line.put("name", header.getSimpleName());
        RocketMQAction action = header.getAnnotation(RocketMQAction.class);
        line.put("code", action == null ? null : action.value());
        line.put("fast", FastCodesHeader.class.isAssignableFrom(header));
        Object fresh = header.getDeclaredConstructor().newInstance();
        List<Map<String, Object>> fields = new ArrayList<>();
        for (Class<?> level = header; level != Object.class; level = level.getSuperclass()) {
            for (Field field : level.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    fields.add(describe(field, fresh, level != header));
                }
            }
        }
        line.put("fields", fields);
        return line;
    }

    private static Map<String, Object> describe(Field field, Object fresh, boolean inherited) throws Exception {
        field.setAccessible(true);
        Object initial = field.get(fresh);
        Map<String, Object> one = new LinkedHashMap<>();
        one.put("name", field.getName());
        one.put("type", field.getType().getSimpleName());
        one.put("notNull", has(field, CFNotNull.class));
        one.put("initial", initial == null ? null : initial.toString());
        one.put("inherited", inherited);
        return one;
    }

    private static boolean has(Field field, Class<? extends Annotation> annotation) {
        return field.getAnnotation(annotation) != null;
    }
}
