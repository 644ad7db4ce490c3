# Sourced by each finding: a temporary folder, pinned packages, servers of RocketMQ, and the comparison with what was seen.
# shellcheck shell=bash
set -euo pipefail
HOME_OF_CALLER=$HOME
WORK=$(mktemp -d)
PIDS=()

finish() {
    local status=$? pid
    for pid in "${PIDS[@]}"; do kill -9 "$pid" 2> /dev/null || true; done
    if [ "$status" -ne 0 ] && [ "$status" -ne 1 ]; then tail -n 20 "$WORK"/*.log 2> /dev/null || true; fi
    chmod -R u+w "$WORK"
    rm -rf "$WORK"
    exit "$status"
}
trap finish EXIT
cd "$WORK"
mkdir logging
echo '<configuration/>' > logging/rmq.logback-test.xml

# classpath NAME GROUP:ARTIFACT:VERSION …: resolves the artifacts into NAME.cp. pin:… only sets a version.
classpath() {
    local name=$1 item tag pins='' uses='' g a v
    shift
    for item in "$@"; do
        IFS=: read -r g a v <<< "${item#pin:}"
        tag="<dependency><groupId>$g</groupId><artifactId>$a</artifactId><version>$v</version></dependency>"
        if [ "$item" = "${item#pin:}" ]; then uses+=$tag; else pins+=$tag; fi
    done
    mkdir -p "$name.project"
    cat > "$name.project/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencyManagement><dependencies>$pins</dependencies></dependencyManagement><dependencies>$uses</dependencies></project>
POM
    HOME=$HOME_OF_CALLER timeout 600 mvn --batch-mode --quiet --file "$name.project/pom.xml" \
        dependency:build-classpath -Dmdep.outputFile="$WORK/$name.cp" > mvn.log
}

# rocketmq NAME VERSION: a class path with broker, name server and tools. Of 5.5.1 six modules are published; the rest is 5.5.0.
rocketmq() {
    local group=org.apache.rocketmq module items=()
    if [ "$2" = 5.5.1 ]; then
        for module in client srvutil filter auth; do items+=("pin:$group:rocketmq-$module:5.5.0"); done
        for module in common remoting; do items+=("pin:$group:rocketmq-$module:5.5.1"); done
        classpath "$1" "${items[@]}" $group:rocketmq-broker:5.5.1 $group:rocketmq-{namesrv,tools}:5.5.0
    else
        classpath "$1" $group:rocketmq-{broker,namesrv,tools}:"$2"
    fi
}

# run_java NAME ARGUMENT …: Java with the class path of classpath, at most 150 s; the log goes to java.log.
run_java() {
    local name=$1
    shift
    timeout 150 java -XX:TieredStopAtLevel=1 -Xmx512m --add-opens java.base/java.nio=ALL-UNNAMED \
        --add-opens java.base/sun.nio.ch=ALL-UNNAMED --add-opens java.base/jdk.internal.ref=ALL-UNNAMED \
        -Duser.home="$WORK" \
        -cp "$WORK/logging:$(cat "$WORK/$name.cp")" "$@" 2>> java.log
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start_server PORT NAME CLASS FILE: starts a server of RocketMQ, and waits until its port is open.
start_server() {
    mkdir -p home
    ROCKETMQ_HOME=$WORK/home java -Xmx768m -Duser.home="$WORK" -Drocketmq.client.logUseSlf4j=true \
        -cp "$WORK/logging:$(cat "$WORK/$2.cp")" "$3" -c "$4" >> "${4%.conf}.log" 2>&1 &
    PIDS+=($!)
    disown
    for _ in $(seq 600); do
        if (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; then return; fi
        sleep 0.1
    done
    echo "the server of $4 did not start" >&2
    exit 2
}

# start_cluster NAME [BROKER …]: a name server and brokers, as $NAMESRV; KEY=VALUE lines of extra.conf go into each broker.conf.
start_cluster() {
    local name=$1 broker port
    shift
    port=$(free_port)
    NAMESRV=127.0.0.1:$port
    printf 'listenPort=%s\nkvConfigPath=%s/kv.json\n' "$port" "$WORK" > namesrv.conf
    start_server "$port" "$name" org.apache.rocketmq.namesrv.NamesrvStartup namesrv.conf
    for broker in "${@:-broker-a}"; do start_broker "$name" "$broker"; done
}

start_broker() {
    local port
    port=$(free_port)
    cat > "$2.conf" <<CONF
brokerClusterName=c
brokerName=$2
brokerId=0
brokerIP1=127.0.0.1
listenPort=$port
haListenPort=0
namesrvAddr=$NAMESRV
storePathRootDir=$WORK/$2
storePathCommitLog=$WORK/$2/commitlog
mappedFileSizeCommitLog=16777216
mappedFileSizeConsumeQueue=600000
maxIndexNum=1000
maxHashSlotNum=500
transactionTimeOut=1000
diskMaxUsedSpaceRatio=99
CONF
    if [ -f extra.conf ]; then cat extra.conf >> "$2.conf"; fi
    start_server "$port" "$1" org.apache.rocketmq.broker.BrokerStartup "$2.conf"
    printf -v "ADDRESS_${2//-/_}" '127.0.0.1:%s' "$port"
}

# report VERSIONS GUESS HAPPENS: what the finding says.
report() {
    printf 'with      %s\na guess   %s\nhappens   %s\n' "$1" "$2" "$3"
}

# expect EXPECTED SEEN: fails if the output is another one than when the finding was written.
expect() {
    if [ "$1" != "$2" ]; then
        printf -- '--- expected\n%s\n--- seen\n%s\n' "$1" "$2"
        exit 1
    fi
    printf 'output    %s\n' "${2//$'\n'/$'\n'          }"
}
