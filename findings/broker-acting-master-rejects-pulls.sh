#!/usr/bin/env bash
# A slave that acts as the master is what the route gives to consumers, and rejects their pulls.
source "$(dirname "$0")/common/harness.bash"
rocketmq rocketmq 5.5.0
echo 'enableSlaveActingMaster=true' > extra.conf

port=$(free_port)
NAMESRV=127.0.0.1:$port
printf 'listenPort=%s\nkvConfigPath=%s/kv.json\nsupportActingMaster=true\n' "$port" "$WORK" > namesrv.conf
start_server "$port" rocketmq org.apache.rocketmq.namesrv.NamesrvStartup namesrv.conf
start_broker rocketmq master
sed -i 's/^brokerName=.*/brokerName=a/' master.conf
kill -9 "${PIDS[1]}"
start_server "$(sed -n 's/^listenPort=//p' master.conf)" rocketmq org.apache.rocketmq.broker.BrokerStartup master.conf
MASTER=${PIDS[2]} slave_port=$(free_port)
sed "s/^brokerId=.*/brokerId=1\nbrokerRole=SLAVE/; s/^listenPort=.*/listenPort=$slave_port/; s#$WORK/master#$WORK/slave#" \
    master.conf > slave.conf
start_server "$slave_port" rocketmq org.apache.rocketmq.broker.BrokerStartup slave.conf

tools() { run_java rocketmq org.apache.rocketmq.tools.command.MQAdminStartup "$@" -n "$NAMESRV"; }
tools updateTopic -b "127.0.0.1:$(sed -n 's/^listenPort=//p' master.conf)" -t T -r 1 -w 1 > tool.log
for _ in $(seq 240); do
    if grep -qs '"T"' slave/config/topics.json; then break; fi
    sleep 0.5
done
kill -9 "$MASTER"
sleep 3

seen=$(python3 - "$port" "$slave_port" <<'PYTHON'
import json, socket, sys

def ask(port, code, fields):
    header = json.dumps({"code": code, "language": "JAVA", "version": 493, "opaque": 1, "flag": 0, "extFields": fields}).encode()
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.sendall((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        stream = connection.makefile("rb")
        frame = stream.read(int.from_bytes(stream.read(4), "big"))
    size = int.from_bytes(frame[1:4], "big")
    return json.loads(frame[4 : 4 + size]), frame[4 + size :].decode()

namesrv, slave = sys.argv[1:]
route = json.loads(ask(namesrv, 105, {"topic": "T", "acceptStandardJsonOnly": "true"})[1])
print("the route's master is the slave:", route["brokerDatas"][0]["brokerAddrs"] == {"0": f"127.0.0.1:{slave}"})
pull = {"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
answer, _ = ask(slave, 11, pull)
print("pull:", answer["code"], answer.get("remark"))
PYTHON
)
report 'RocketMQ 5.5.0, enableSlaveActingMaster=true at master and slave, supportActingMaster=true at the name server' \
    'a slave that acts as the master serves pulls' \
    'it rejects each pull unless slaveReadEnable is set, too: consumers stand still until the master is back'
expect "the route's master is the slave: True
pull: 2 [REJECTREQUEST]system busy, start flow control for a while" "$seen"
