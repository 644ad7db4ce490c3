package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints the queues that RocketMQ's strategies assign to a client. Each input line {@code
 * {strategy,me,queues:[[topic,broker,id]], clients:[…],rooms?,configured?}} gives a line {@code {name,queues}}. The
 * machine room is the part before the {@code @} of a broker's name, and before the {@code #} of a client's id.
 */
final class Allocate implements Command {
    @Override
    public String usage() {
        return "FILE";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        for (String text : Files.readAllLines(Path.of(options.positional("FILE")))) {
            JSONObject line = JSON.parseObject(text);
            AllocateMessageQueueStrategy strategy = strategy(line);
            List<String> clients = line.getJSONArray("clients").toJavaList(String.class);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("name", strategy.getName());
            answer.put("queues", strategy.allocate("group", line.getString("me"), queues(line, "queues"), clients).stream()
                .map(queue -> List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()))
                .collect(Collectors.toList()));
            out.line(answer);
        }
        return 0;
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject line) {
        switch (line.getString("strategy")) {
            case "averagely":
                return new AllocateMessageQueueAveragely();
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "config":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(line, "configured"));
                return config;
            case "room":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(Set.copyOf(line.getJSONArray("rooms").toJavaList(String.class)));
                return room;
            case "nearby":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            case "hash":
                return new AllocateMessageQueueConsistentHash();
            default:
                throw new UsageException("no strategy " + line.getString("strategy"));
        }
    }

    private static List<MessageQueue> queues(JSONObject line, String name) {
        return line.getJSONArray(name).stream().map(one -> (JSONArray) one)
            .map(one -> new MessageQueue(one.getString(0), one.getString(1), one.getIntValue(2)))
            .collect(Collectors.toList());
    }

    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String client) {
            return client.split("#")[0];
        }
    }
}
