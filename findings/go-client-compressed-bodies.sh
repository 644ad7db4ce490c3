#!/usr/bin/env bash
# RocketMQ's Go client hands out the compressed bytes of LZ4 and Zstandard bodies as the body, without an error.
source "$(dirname "$0")/common/harness.bash"
classpath java org.apache.rocketmq:rocketmq-common:5.5.0

cat > Write.java <<'JAVA'
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.file.*;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

public class Write {
    public static void main(String[] args) throws Exception {
        try (OutputStream out = Files.newOutputStream(Path.of("records"))) {
            for (CompressionType type : new CompressionType[] {CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD}) {
                byte[] body = CompressorFactory.getCompressor(type).compress("text ".repeat(40).getBytes(), 5);
                MessageExt message = new MessageExt();
                message.setTopic("orders");
                message.setBody(body);
                message.setBodyCRC(UtilAll.crc32(body));
                message.setSysFlag(MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag());
                message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
                message.setStoreHost(new InetSocketAddress("127.0.0.1", 2));
                message.putUserProperty("type", type.name());
                out.write(MessageDecoder.encode(message, false));
            }
        }
    }
}
JAVA
run_java java Write.java

cat > go.mod <<'GO'
module finding

go 1.21

require github.com/apache/rocketmq-client-go/v2 v2.1.2
GO
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func main() {
	records, _ := os.ReadFile("records")
	for _, m := range primitive.DecodeMessage(records) {
		fmt.Println(m.GetProperty("type"), "readable:", strings.HasPrefix(string(m.Body), "text "))
	}
}
GO
{ go mod tidy && go build -o decode . ; } > go.log 2>&1

report "rocketmq-client-go 2.1.2; records of rocketmq-common 5.5.0" \
    "the body of the producer, or an error for a compression that is not known" \
    "the client ignores the type in sysFlag; what is not zlib becomes the body as it is, with success"
expect "ZLIB readable: true
LZ4 readable: false
ZSTD readable: false" "$(./decode)"
