package org.gantrymq.interop;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.MessageConst;

/** Draws the parts of a message that producers may choose, at the limits of the format. */
final class Oddities {
    /** "Aa" and "BB", like "AaAa", "BBBB" and "AaBB", have the same hash code in Java. */
    private static final List<String> TAGS = List.of(
        "Aa", "BB", "A || B", "tag-1", "tag-2", "标签", "ярлык", "🚀 to the moon", "naïve", " ", "t".repeat(300), "");
    private static final List<String> KEYS = List.of(
        "AaAa", "BBBB", "AaBB", "ключ", "订单-7", "🔑", "shared", "a|b", "k".repeat(200));
    private static final List<String> NAMES = List.of(
        "region", "a b", "数量", "цвет", "🎨", "__STARTDELIVERTIME", "x", "ORIGIN_MESSAGE_ID", "UNIQ", "n".repeat(120));
    private static final List<String> VALUES = List.of(
        "", "v", "{\"id\": 7, \"ok\": true}", "支付 naïve émoji", "😀😃", "line\nbreak\ttab", "\"quoted\\", "=", "0", "w".repeat(2000));

    private Oddities() {
    }

    /** Properties in a fixed order. KEYS has up to four keys, sometimes with two spaces between them. */
    static Map<String, String> properties(Random random, long number) {
        Map<String, String> properties = new LinkedHashMap<>();
        if (random.nextInt(100) < 85) {
            properties.put(MessageConst.PROPERTY_TAGS, one(random, TAGS));
        }
        int keys = random.nextInt(5);
        if (keys > 0) {
            StringBuilder joined = new StringBuilder("key-" + number);
            for (int i = 1; i < keys; i++) {
                joined.append(random.nextInt(10) == 0 ? "  " : " ").append(one(random, KEYS));
            }
            properties.put(MessageConst.PROPERTY_KEYS, joined.toString());
        }
        if (random.nextInt(100) < 90) {
            byte[] unique = new byte[16];
            random.nextBytes(unique);
            properties.put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
                HexFormat.of().withUpperCase().formatHex(unique));
        }
        if (random.nextBoolean()) {
            properties.put(MessageConst.PROPERTY_WAIT_STORE_MSG_OK, "true");
        }
        for (int i = random.nextInt(4); i > 0; i--) {
            properties.put(one(random, NAMES), one(random, VALUES));
        }
        return properties;
    }

    static byte[] body(Random random, int size) {
        byte[] body = new byte[random.nextInt(20) == 0 ? 0 : random.nextInt(2 * size + 1)];
        if (random.nextBoolean()) {
            random.nextBytes(body);
            return body;
        }
        byte[] text = "the quick brown fox, 敏捷的棕色狐狸, быстрая лиса; ".getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < body.length; i++) {
            body[i] = text[i % text.length];
        }
        return body;
    }

    static InetSocketAddress host(Random random) {
        byte[] address = new byte[random.nextInt(100) < 30 ? 16 : 4];
        random.nextBytes(address);
        if (address.length == 16) {
            address[0] = 0x20; // a global address, which never looks like a mapped IPv4 address
            address[1] = 0x01;
        }
        try {
            return new InetSocketAddress(InetAddress.getByAddress(address), random.nextInt(65536));
        } catch (UnknownHostException e) {
            throw new AssertionError(e);
        }
    }

    private static String one(Random random, List<String> strings) {
        return strings.get(random.nextInt(strings.size()));
    }
}
