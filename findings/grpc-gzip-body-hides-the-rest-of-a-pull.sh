#!/usr/bin/env bash
# Encoding.GZIP of RocketMQ's gRPC protocol means zlib: a gzip body is undecodable, and hides all messages behind it in a pull.
source "$(dirname "$0")/common/harness.bash"
classpath rmq org.apache.rocketmq:rocketmq-proxy:5.5.0
cat > Decode.java <<'JAVA'
import apache.rocketmq.v2.*;
import java.io.*;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.zip.*;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.proxy.grpc.v2.producer.SendMessageActivity;

public class Decode {
    // What the proxy makes of the encoding that a client names.
    static class Activity extends SendMessageActivity {
        Activity() {
            super(null, null, null);
        }

        int flag(Encoding encoding) {
            return buildSysFlag(apache.rocketmq.v2.Message.newBuilder()
                .setSystemProperties(SystemProperties.newBuilder().setBodyEncoding(encoding)).build());
        }
    }

    static byte[] packed(boolean gzip) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (OutputStream out = gzip ? new GZIPOutputStream(bytes) : new DeflaterOutputStream(bytes)) {
            out.write("text ".repeat(40).getBytes());
        }
        return bytes.toByteArray();
    }

    static byte[] record(byte[] body, int flag) throws Exception {
        MessageExt message = new MessageExt();
        message.setTopic("orders");
        message.setBody(body);
        message.setBodyCRC(UtilAll.crc32(body));
        message.setSysFlag(flag);
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
        message.putUserProperty("n", "1");
        return MessageDecoder.encode(message, false);
    }

    public static void main(String[] args) throws Exception {
        Activity proxy = new Activity();
        for (boolean gzip : new boolean[] {false, true}) {
            ByteArrayOutputStream pull = new ByteArrayOutputStream();
            pull.write(record("first".getBytes(), proxy.flag(Encoding.IDENTITY)));
            pull.write(record(packed(gzip), proxy.flag(Encoding.GZIP)));
            pull.write(record("third".getBytes(), 0));
            pull.write(record("fourth".getBytes(), 0));
            System.out.println((gzip ? "gzip" : "zlib") + " body sent as GZIP: "
                + MessageDecoder.decodes(ByteBuffer.wrap(pull.toByteArray())).size() + " of 4 messages read");
        }
        System.exit(0);
    }
}
JAVA
report "rocketmq-proxy 5.5.0 and the Java client's MessageDecoder of it" \
    "a body in gzip is read, or its message alone is left out" \
    "the decoder returns nothing and moves to the end of the response: consumers skip the messages behind it without an error"
expect "zlib body sent as GZIP: 4 of 4 messages read
gzip body sent as GZIP: 1 of 4 messages read" "$(run_java rmq Decode.java)"
