#!/usr/bin/env bash
# mqadmin exportMetadata of a cluster writes, for each topic, the sum of its queues over all brokers.
source "$(dirname "$0")/common/harness.bash"
rocketmq rmq 5.5.0
start_cluster rmq broker-a broker-b

mqadmin() { run_java rmq -Drocketmq.namesrv.addr="$NAMESRV" org.apache.rocketmq.tools.command.MQAdminStartup "$@" >> mqadmin.log; }
mqadmin updateTopic -c c -t orders -r 8 -w 8
mqadmin updateSubGroup -c c -g readers -q 1
mqadmin exportMetadata -c c -f "$WORK/exported"
seen=$(python3 - <<'PYTHON'
import json

metadata = json.load(open("exported/metadata.json"))
topic = metadata["topicConfigTable"]["orders"]
print("topic orders:", topic["writeQueueNums"], "queues to write,", topic["readQueueNums"], "to read")
print("group readers:", metadata["subscriptionGroupTable"]["readers"]["retryQueueNums"], "retry queue(s)")
PYTHON
)
report "rocketmq-tools 5.5.0, two brokers, each with 8 queues of the topic" \
    "8 queues, as mqadmin updateTopic -c got them: what a restore must be given for each broker" \
    "16: a restore of the file to a cluster of two brokers makes 32 queues"
expect "topic orders: 16 queues to write, 16 to read
group readers: 2 retry queue(s)" "$seen"
