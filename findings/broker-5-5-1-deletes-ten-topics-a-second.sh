#!/usr/bin/env bash
# A 5.5.1 broker deletes the topics of one list at ten a second, and a topic that is created meanwhile waits for all of them.
source "$(dirname "$0")/common/harness.bash"
rocketmq new 5.5.1
start_cluster new
cat > Delete.java <<'JAVA'
import java.util.*;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.remoting.protocol.*;
import org.apache.rocketmq.remoting.protocol.body.*;
import org.apache.rocketmq.remoting.protocol.header.CreateTopicRequestHeader;

public class Delete {
    static String broker;
    static NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());

    static RemotingCommand create(String topic) {
        CreateTopicRequestHeader header = new CreateTopicRequestHeader();
        header.setTopic(topic);
        header.setDefaultTopic("TBW102");
        header.setReadQueueNums(1);
        header.setWriteQueueNums(1);
        header.setPerm(6);
        header.setTopicFilterType("SINGLE_TAG");
        header.setTopicSysFlag(0);
        header.setOrder(false);
        return RemotingCommand.createRequestCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, header);
    }

    static int ask(RemotingCommand request) throws Exception {
        return client.invokeSync(broker, request, 60_000).getCode();
    }

    public static void main(String[] args) throws Exception {
        broker = args[0];
        client.start();
        List<String> names = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            names.add("made-" + i);
            ask(create(names.get(i)));
        }
        DeleteTopicListRequestBody body = new DeleteTopicListRequestBody();
        body.setTopicList(names);
        RemotingCommand request = RemotingCommand.createRequestCommand(5002, null);
        request.setBody(body.encode());
        long start = System.nanoTime();
        CompletableFuture<long[]> deletion = CompletableFuture.supplyAsync(() -> {
            try {
                return new long[] {ask(request), (System.nanoTime() - start) / 1_000_000};
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        Thread.sleep(300);
        ask(create("other"));
        long waited = (System.nanoTime() - start) / 1_000_000;
        long[] deleted = deletion.get();
        System.out.println("50 topics deleted: code " + deleted[0] + ", in 4.5 s or more: " + (deleted[1] >= 4500));
        System.out.println("another topic created at 0.3 s, answered after 4 s or more: " + (waited >= 4000));
        System.exit(0);
    }
}
JAVA
seen=$(run_java new Delete.java "$ADDRESS_broker_a")
report "rocketmq-broker 5.5.1, DELETE_TOPIC_IN_BROKER_LIST (5002), default batchDeleteTopicMaxRate" \
    "a list is a faster way than one request for each topic" \
    "the request sleeps between topics under the lock of the administration: past the clients' usual 3 to 5 s it times out"
expect "50 topics deleted: code 0, in 4.5 s or more: true
another topic created at 0.3 s, answered after 4 s or more: true" "$seen"
