#!/usr/bin/env bash
# With enableLmq=true a broker knows no offset that any group has committed before, and without it again none of those since.
source "$(dirname "$0")/common/harness.bash"
rocketmq rmq 5.5.0
cat > Offset.java <<'JAVA'
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class Offset {
    /** NAMESRV BROKER OFFSET: prints the committed offset of an ordinary group, and commits another one. */
    public static void main(String[] args) throws Exception {
        MessageQueue queue = new MessageQueue("orders", "broker-a", 0);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("readers");
        consumer.setNamesrvAddr(args[0]);
        consumer.setMqClientApiTimeout(30_000);
        consumer.start();
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000L);
        admin.setNamesrvAddr(args[0]);
        admin.setMqClientApiTimeout(30_000);
        admin.start();
        Long known = consumer.committed(queue);
        System.out.println(known == null || known < 0 ? "none" : known);
        admin.updateConsumeOffset(args[1], "readers", queue, Long.parseLong(args[2]));
        System.exit(0);
    }
}
JAVA

mqadmin() { run_java rmq -Drocketmq.namesrv.addr="$NAMESRV" org.apache.rocketmq.tools.command.MQAdminStartup "$@"; }

# life ENABLE_LMQ OFFSET: a life of the one broker on its one store; prints what it knew, and commits OFFSET.
life() {
    printf 'enableLmq=%s\nflushConsumerOffsetInterval=500\n' "$1" > extra.conf
    start_cluster rmq broker-a
    if [ ! -f created ]; then
        mqadmin updateTopic -b "$ADDRESS_broker_a" -t orders -r 1 -w 1 > created
        mqadmin updateSubGroup -b "$ADDRESS_broker_a" -g readers >> created
    fi
    run_java rmq Offset.java "$NAMESRV" "$ADDRESS_broker_a" "$2" | sed "s/^/enableLmq=$1: /" >> known
    sleep 3
    kill "${PIDS[-1]}"
    while kill -0 "${PIDS[-1]}" 2> /dev/null; do sleep 0.1; done
}
life false 7
life true 9
life false 11
report "rocketmq-broker 5.5.0, an ordinary topic and group, one store" \
    "light queues get files of their own; offsets of ordinary groups are as before" \
    "all offsets go to lmqConsumerOffset.json, and consumerOffset.json is neither read nor written while the key is true"
expect "enableLmq=false: none
enableLmq=true: none
enableLmq=false: 7" "$(cat known)"
