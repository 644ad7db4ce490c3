#!/usr/bin/env bash
# A 4.9 store takes the first record with a topic of more than 127 bytes for the end of the log, and drops what follows.
source "$(dirname "$0")/common/harness.bash"
classpath new org.apache.rocketmq:rocketmq-store:5.5.0
classpath old org.apache.rocketmq:rocketmq-store:4.9.8

settings='MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir("store");
        config.setStorePathCommitLog("store/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeConsumeQueue(20_000);
        config.setMaxIndexNum(400);
        config.setMaxHashSlotNum(100);
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(99);'
imports='import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;'
ending='Thread.sleep(1000);
        for (String topic : new String[] {"before", "L".repeat(130), "after"}) {
            System.out.print(topic.length() + ":" + store.getMaxOffsetInQueue(topic, 0) + " ");
        }
        System.out.println("log:" + store.getMaxPhyOffset());
        store.shutdown();
        System.exit(0);'

cat > Write.java <<JAVA
$imports
public class Write {
    public static void main(String[] args) throws Exception {
        $settings
        config.setTimerWheelEnable(false);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("c", true),
            (topic, queue, offset, code, time, bits, properties) -> { }, new BrokerConfig(), new ConcurrentHashMap<>());
        store.load();
        store.start();
        for (String topic : new String[] {"before", "L".repeat(130), "after", "after"}) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(topic);
            message.setBody("body".getBytes());
            message.putUserProperty("n", "1");
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new java.net.InetSocketAddress("127.0.0.1", 1));
            message.setStoreHost(new java.net.InetSocketAddress("127.0.0.1", 2));
            store.putMessage(message);
        }
        $ending
    }
}
JAVA
cat > Open.java <<JAVA
$imports
public class Open {
    public static void main(String[] args) throws Exception {
        $settings
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("c", true),
            (topic, queue, offset, code, time, bits, properties) -> { }, new BrokerConfig());
        System.out.print("load:" + store.load() + " ");
        store.start();
        $ending
    }
}
JAVA
written=$(run_java new Write.java)
opened=$(run_java old Open.java)

report "rocketmq-store 5.5.0, then 4.9.8 on the same directory after a clean stop" \
    "the older release reads all four messages, or refuses a log that it does not know" \
    "it starts; magic 0xdaa320a7 + 4 is unknown to it, so the log ends there, and queue units behind it are cut"
expect "6:1 130:1 5:2 log:WRITTEN
load:true 6:1 130:0 5:0 log:SHORTER" "$(echo "$written" | sed 's/log:[0-9]*/log:WRITTEN/')
$(echo "$opened" | sed 's/log:\([0-9]\{1,3\}\)$/log:SHORTER/')"
