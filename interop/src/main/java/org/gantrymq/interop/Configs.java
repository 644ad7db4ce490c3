package org.gantrymq.interop;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.SubscriptionGroupAttributes;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.attribute.Attribute;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Prints the keys of RocketMQ's configuration classes with their defaults, and the attributes of topics and groups. */
final class Configs implements Command {
    private static final Set<String> READABLE =
        Set.of("int", "Integer", "long", "Long", "double", "Double", "boolean", "Boolean", "float", "Float", "String");

    @Override
    public String usage() {
        return "";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        for (Object config : List.of(new BrokerConfig(), new MessageStoreConfig(), new NettyServerConfig(),
            new NettyClientConfig(), new AuthConfig(), new NamesrvConfig())) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("kind", "config");
            line.put("name", config.getClass().getSimpleName());
            line.put("values", defaults(config));
            out.line(line);
        }
        out.line(attributes("TopicAttributes", TopicAttributes.ALL));
        out.line(attributes("SubscriptionGroupAttributes", SubscriptionGroupAttributes.ALL));
        return 0;
    }

    /** The keys that MixAll.properties2Object sets, each with the value of its field. */
    private static Map<String, String> defaults(Object config) throws IllegalAccessException {
        Map<String, String> found = new TreeMap<>();
        for (Method method : config.getClass().getMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && method.getParameterCount() > 0
                && READABLE.contains(method.getParameterTypes()[0].getSimpleName())) {
                String key = name.substring(3, 4).toLowerCase() + name.substring(4);
                found.put(key, value(config, key));
            }
        }
        return found;
    }

    private static String value(Object config, String key) throws IllegalAccessException {
        Map<String, Field> fields = new HashMap<>();
        for (Class<?> level = config.getClass(); level != Object.class; level = level.getSuperclass()) {
            for (Field field : level.getDeclaredFields()) {
                fields.putIfAbsent(field.getName().toLowerCase(), field);
            }
        }
        Field field = fields.get(key.toLowerCase());
        if (field == null) {
            field = fields.get("is" + key.toLowerCase());
        }
        if (field == null) {
            return null;
        }
        field.setAccessible(true);
        Object value = field.get(config);
        return value == null ? "" : value.toString();
    }

    private static Map<String, Object> attributes(String name, Map<String, Attribute> all) {
        Map<String, Boolean> changeable = new TreeMap<>();
        all.forEach((key, attribute) -> changeable.put(key, attribute.isChangeable()));
        return Map.of("kind", "attributes", "name", name, "values", changeable);
    }
}
