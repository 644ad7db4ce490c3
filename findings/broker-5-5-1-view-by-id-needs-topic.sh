#!/usr/bin/env bash
# A 5.5.1 broker refuses to show a message by its id if the request names the topic that a retry or dead letter came from.
source "$(dirname "$0")/common/harness.bash"
rocketmq old 5.5.0
rocketmq new 5.5.1
cat > View.java <<'JAVA'
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class View {
    static String view(DefaultMQAdminExt admin, String topic, String id) throws Exception {
        try {
            return admin.viewMessage(topic, id) == null ? "nothing" : "shown";
        } catch (MQClientException failed) {
            return "no message (code " + failed.getResponseCode() + ")";
        }
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(args[0]);
        producer.setMqClientApiTimeout(30_000);
        producer.start();
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000L);
        admin.setNamesrvAddr(args[0]);
        admin.setMqClientApiTimeout(30_000);
        admin.start();
        // A dead letter as a broker stores it: in the topic of its group, with the origin in a property.
        Message letter = new Message("%DLQ%readers", "body".getBytes());
        MessageAccessor.putProperty(letter, MessageConst.PROPERTY_RETRY_TOPIC, "orders");
        String dead = producer.send(letter, 30_000).getOffsetMsgId();
        Message later = new Message("orders", "body".getBytes());
        later.setDelayTimeLevel(18);
        String delayed = producer.send(later, 30_000).getOffsetMsgId();
        System.out.println("dead letter, asked for as %DLQ%readers: " + view(admin, "%DLQ%readers", dead));
        System.out.println("dead letter, asked for as orders: " + view(admin, "orders", dead));
        System.out.println("delayed, asked for as orders: " + view(admin, "orders", delayed));
        System.exit(0);
    }
}
JAVA
answers=''
for name in old new; do
    start_cluster "$name" "broker-$name"
    answers+="$name broker
$(run_java old View.java "$NAMESRV")
"
done
report "rocketmq-broker 5.5.0 and 5.5.1, rocketmq-tools 5.5.0" \
    "an id names one message; the topic of the request is a hint, as it was in all releases before" \
    "5.5.1 compares topics: waiting messages count for their real topic, but retries and dead letters do not"
expect "old broker
dead letter, asked for as %DLQ%readers: shown
dead letter, asked for as orders: shown
delayed, asked for as orders: shown
new broker
dead letter, asked for as %DLQ%readers: shown
dead letter, asked for as orders: no message (code 208)
delayed, asked for as orders: shown" "${answers%$'\n'}"
