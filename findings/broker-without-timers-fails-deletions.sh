#!/usr/bin/env bash
# With timerWheelEnable=false a broker deletes a topic and answers with an error; of a list it deletes only the first.
source "$(dirname "$0")/common/harness.bash"
rocketmq new 5.5.1
echo 'timerWheelEnable=false' > extra.conf
start_cluster new
cat > Delete.java <<'JAVA'
import java.util.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.remoting.protocol.*;
import org.apache.rocketmq.remoting.protocol.body.DeleteTopicListRequestBody;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class Delete {
    public static void main(String[] args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000L);
        admin.setNamesrvAddr(args[0]);
        admin.setMqClientApiTimeout(30_000);
        admin.start();
        for (String topic : new String[] {"single", "first", "second"}) {
            admin.createAndUpdateTopicConfig(args[1], new TopicConfig(topic, 1, 1));
        }
        String single = "SUCCESS";
        try {
            admin.deleteTopicInBroker(new HashSet<>(List.of(args[1])), "single");
        } catch (MQClientException failed) {
            single = "code " + failed.getResponseCode();
        }
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        DeleteTopicListRequestBody body = new DeleteTopicListRequestBody();
        body.setTopicList(List.of("first", "second"));
        RemotingCommand request = RemotingCommand.createRequestCommand(5002, null);
        request.setBody(body.encode());
        int list = client.invokeSync(args[1], request, 20_000).getCode();
        Set<String> left = new TreeSet<>(admin.getAllTopicConfig(args[1], 10_000).getTopicConfigTable().keySet());
        left.retainAll(List.of("single", "first", "second"));
        System.out.println("one topic: " + single + ", a list of two: code " + list + ", left: " + left);
        System.exit(0);
    }
}
JAVA
seen=$(run_java new Delete.java "$NAMESRV" "$ADDRESS_broker_a")
report "rocketmq-broker 5.5.1 with timerWheelEnable=false, rocketmq-tools 5.5.0" \
    "a broker without timers deletes topics as others do" \
    "the last step of a deletion clears timer statistics that such a broker does not have"
expect "one topic: code 1, a list of two: code 1, left: [second]" "$seen"
