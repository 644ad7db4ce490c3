import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.proxy.config.ProxyConfig;

/** Prints the keys of ProxyConfig with their defaults as JSON. Run with target/lib/* as the class path. */
public final class ConfigKeys {
    private ConfigKeys() {
    }

    public static void main(String[] args) throws Exception {
        ProxyConfig config = new ProxyConfig();
        Map<String, String> keys = new TreeMap<>();
        for (Field field : ProxyConfig.class.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isTransient(field.getModifiers())) {
                field.setAccessible(true);
                Object value = field.get(config);
                keys.put(field.getName(), value == null ? null : value.toString());
            }
        }
        System.out.println(JSON.toJSONString(keys, JSONWriter.Feature.WriteNulls));
    }
}
