"""``gantrymq mqadmin``: the names and option letters of RocketMQ's mqadmin (5.5.0), for the commands of ``admin``.

A call is translated into words of ``gantrymq admin``, by the table ``SUBCOMMANDS``. Options of ``gantrymq admin`` that
begin with ``--`` (``--json``, ``--profile``, …) may follow and are passed on.

Source: MQAdminStartup and its SubCommand classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import typer

from gantrymq.cli.admin.commands import admin_application
from gantrymq.cli.admin.session import require
from gantrymq.cli.admin.tools_file import with_account
from gantrymq.cli.terminal import warn
from gantrymq.errors import MQClientError

_WHERE = "b/brokerAddr=:--broker c/clusterName=:--cluster"
_POLICY = "s/subject=:1 r/resources=:*--resource a/actions=:*--action d/decision=:--decision i/sourceIp=:*--source-ip"
_CONTROLLER = "a controller of RocketMQ, which gantrymq does not have: use RocketMQ's mqadmin"
_CONTAINER = "a container of brokers, which gantrymq does not have: start each broker as a process of its own"
_STATIC = "static topics, which map their queues to several brokers: use RocketMQ's mqadmin at RocketMQ's brokers"
_WHY = {
    "lmq": "is for light queues (LMQ), which gantrymq does not read: use RocketMQ's mqadmin",
    "files": "reads files of RocksDB on this machine, which gantrymq does not: ask the broker with -b or -c",
}
UNSUPPORTED = {
    **dict.fromkeys(("addBroker", "removeBroker"), _CONTAINER),
    **dict.fromkeys(("getSyncStateSet", "getControllerMetaData", "getControllerConfig"), _CONTROLLER),
    **dict.fromkeys(("updateControllerConfig", "electMaster", "cleanBrokerMetadata"), _CONTROLLER),
    **dict.fromkeys(("updateStaticTopic", "remappingStaticTopic"), _STATIC),
    "exportMetadataInRocksDB": "files of RocksDB on this machine: at the broker's, use rocksDBConfigToJson -b instead",
    "dumpCompactionLog": "files of a compaction topic, which gantrymq does not read: use RocketMQ's mqadmin",
}
_MQADMIN_TIME = "%Y-%m-%d#%H:%M:%S:%f"


class Subcommand(NamedTuple):
    """A subcommand: the words of ``gantrymq admin``, and where the value of each option goes.

    An option is ``letter/name=:target``, without ``=`` if it has no value, and with a default after the ``=``. One
    option of ``one_of`` must be given.

    ===============  ================================================================
    target           the value is
    ===============  ================================================================
    ``1``, ``*2``    the first argument; several arguments, separated by commas
    ``--x, *--x``    the value of an option; of an option for each part
    ``?--x/--no-x``  a flag for true / for false
    ``@--x``         a time
    ``.``            of no effect, because the output has it anyway
    ``~``            of no effect, with a warning
    ``!why``         refused, with the reason of ``_WHY``
    ===============  ================================================================
    """

    words: str
    options: str
    one_of: str = ""


SUBCOMMANDS: dict[str, Subcommand] = {
    "updateTopic": Subcommand(
        "topic create",
        f"{_WHERE} t/topic=:1 a/attributes=:*--attribute r/readQueueNums=8:--read-queues"
        " w/writeQueueNums=8:--write-queues p/perm=6:--perm o/order=:?--order/--no-order"
        " u/unit=false:?--unit/--no-unit s/hasUnitSub=false:?--unit-sub/--no-unit-sub",
        "b c",
    ),
    "updateTopicList": Subcommand("import --replace", f"{_WHERE} f/filename=:1", "b c"),
    "deleteTopic": Subcommand("topic delete", "t/topic=:1 c/clusterName=:--cluster", "c"),
    "updateSubGroup": Subcommand(
        "group create",
        f"{_WHERE} g/groupName=:1 s/consumeEnable=true:?--enable/--disable"
        " m/consumeFromMinEnable=false:?--from-min/--no-from-min"
        " d/consumeBroadcastEnable=false:?--broadcast/--no-broadcast"
        " o/consumeMessageOrderly=false:?--orderly/--no-orderly q/retryQueueNums=1:--retry-queues"
        " r/retryMaxTimes=16:--retry-max p/groupRetryPolicy=:--retry-policy i/brokerId=0:--broker-id"
        " w/whichBrokerWhenConsumeSlowly=1:--slow-broker a/notifyConsumerIdsChanged=true:?--notify/--no-notify"
        " /attributes=:*--attribute",
        "b c",
    ),
    "updateSubGroupList": Subcommand("import --replace", f"{_WHERE} f/filename=:1", "b c"),
    "setConsumeMode": Subcommand(
        "group mode",
        f"{_WHERE} t/topicName=:--topic g/groupName=:1 m/mode=:2 q/popShareQueueNum=:--share-queues",
        "b c",
    ),
    "deleteSubGroup": Subcommand("group delete", f"{_WHERE} g/groupName=:1 r/removeOffset=:?--remove-offset", "b c"),
    "updateBrokerConfig": Subcommand("broker config set", f"{_WHERE} a/updateAllBroker=:~ k/key=:1 v/value=:2", "b c"),
    "updateTopicPerm": Subcommand("topic perm", f"{_WHERE} t/topic=:1 p/perm=:2", "b c"),
    "topicRoute": Subcommand("topic route", "t/topic=:1 l/list:."),
    "topicStatus": Subcommand("topic status", "t/topic=:1 c/cluster=:~"),
    "topicClusterList": Subcommand("topic route", "t/topic=:1"),
    "brokerStatus": Subcommand("broker status", _WHERE, "b c"),
    "queryMsgById": Subcommand(
        "message by-id --tracks",
        "t/topic=:1 i/msgId=:*2 g/consumerGroup=:--group d/clientId=:--client s/sendMessage=:resend u/unitName=:~"
        " f/bodyFormat=:. c/cluster=:~",
    ),
    "queryMsgByKey": Subcommand(
        "message by-key",
        "t/topic=:1 k/msgKey=:2 b/beginTimestamp=:@--begin e/endTimestamp=:@--end m/maxNum=:--max c/cluster=:~"
        " p/keyType=:--key-type l/lastKey=:--last-key",
    ),
    "queryMsgByUniqueKey": Subcommand(
        "message by-unique-key --tracks",
        "t/topic=:1 i/msgId=:2 a/showAll:. g/consumerGroup=:--group d/clientId=:--client c/cluster=:~"
        " s/startTime=:@--begin e/endTime=:@--end",
    ),
    "queryMsgByOffset": Subcommand(
        "message by-offset --tracks",
        "t/topic=:1 b/brokerName=:--broker i/queueId=:2 o/offset=:3 f/bodyFormat=:. r/routeTopic=:!lmq",
    ),
    "queryMsgTraceById": Subcommand(
        "message trace",
        "i/msgId=:1 t/traceTopic=:--trace-topic b/beginTimestamp=:@--begin e/endTimestamp=:@--end c/maxNum=:--max",
    ),
    "printMsg": Subcommand(
        "message print",
        "t/topic=:1 s/subExpression=:--tag b/beginTimestamp=:@--begin e/endTimestamp=:@--end c/charsetName=:."
        " d/printBody=:. l/lmqParentTopic=:!lmq",
    ),
    "printMsgByQueue": Subcommand(
        "message print",
        "t/topic=:1 a/brokerName=:--broker i/queueId=:--queue s/subExpression=:--tag b/beginTimestamp=:@--begin"
        " e/endTimestamp=:@--end c/charsetName=:. p/print=:. d/printBody=:. f/calculate=:?--count-tags",
    ),
    "sendMsgStatus": Subcommand("message probe", "b/brokerName=:1 s/messageSize=:--size c/count=50:--amount"),
    "brokerConsumeStats": Subcommand(
        "broker consume-stats", "b/brokerAddr=:--broker t/timeoutMillis=:~ l/level=:--behind o/order=:?--order", "b"
    ),
    "producerConnection": Subcommand("connection producers", "g/producerGroup=:1 t/topic=:--topic"),
    "consumerConnection": Subcommand("connection consumers", "g/consumerGroup=:1 b/brokerAddr=:."),
    "consumerProgress": Subcommand(
        "group progress", "g/groupName=:1 t/topicName=:--topic s/showClientIP=:?--members c/cluster=:~"
    ),
    "consumerStatus": Subcommand(
        "group state", "g/consumerGroup=:1 i/clientId=:--client b/brokerAddr=:. s/jstack:--jstack"
    ),
    "cloneGroupOffset": Subcommand(
        "group clone", "s/srcGroup=:1 d/destGroup=:2 t/topic=:--topic o/offline=:?--offline"
    ),
    "producer": Subcommand("producer list", "b/broker=:--broker", "b"),
    "clusterList": Subcommand("cluster", "m/moreStats:. i/interval=:--watch c/clusterName=:--cluster"),
    "topicList": Subcommand("topic list", "c/clusterModel:--detail"),
    "updateKvConfig": Subcommand("kv put", "s/namespace=:1 k/key=:2 v/value=:3"),
    "deleteKvConfig": Subcommand("kv delete", "s/namespace=:1 k/key=:2"),
    "wipeWritePerm": Subcommand("broker write-perm wipe", "b/brokerName=:1"),
    "addWritePerm": Subcommand("broker write-perm add", "b/brokerName=:1"),
    "resetOffsetByTime": Subcommand(
        "group reset",
        "g/group=:1 t/topic=:--topic s/timestamp=:@--to f/force=true:?/--only-back b/broker=:--broker q/queue=:--queue"
        " o/offset=:--offset c/cluster=:~",
    ),
    "skipAccumulatedMessage": Subcommand(
        "group reset --to latest", "g/group=:1 t/topic=:--topic f/force=true:?/--only-back c/cluster=:~"
    ),
    "updateOrderConf": Subcommand("kv", "t/topic=:1 v/orderConf=:2 m/method=:method"),
    "cleanExpiredCQ": Subcommand("broker clean --expired-queues", "b/brokerAddr=:--broker c/cluster=:--cluster"),
    "deleteExpiredCommitLog": Subcommand("broker clean --expired-logs", "b/brokerAddr=:--broker c/cluster=:--cluster"),
    "cleanUnusedTopic": Subcommand("broker clean --unused-topics", "b/brokerAddr=:--broker c/cluster=:--cluster"),
    "statsAll": Subcommand("stats", "a/activeTopic:--active t/topic=:--topic"),
    "allocateMQ": Subcommand("topic allocate", "t/topic=:1 i/ipList=:2"),
    "checkMsgSendRT": Subcommand("message probe", "t/topic=:1 a/amount=100:--amount s/size=128:--size"),
    "clusterRT": Subcommand(
        "message probe",
        "a/amount=100:--amount s/size=128:--size c/cluster=:--cluster p/print=:~ m/machine=:~ i/interval=:~",
    ),
    "getNamesrvConfig": Subcommand("namesrv get", ""),
    "updateNamesrvConfig": Subcommand("namesrv set", "k/key=:1 v/value=:2"),
    "getBrokerConfig": Subcommand("broker config get", _WHERE, "b c"),
    "getConsumerConfig": Subcommand("group config", "g/groupName=:1"),
    "queryCq": Subcommand(
        "message units", "t/topic=:1 q/queue=:2 i/index=:3 c/count=10:--count b/broker=:--broker g/consumer=:--group"
    ),
    "sendMessage": Subcommand(
        "message send",
        "t/topic=:1 p/body=:2 k/key=:--key c/tags=:--tag b/broker=:--broker i/qid=:--queue m/msgTraceEnable=:~",
    ),
    "consumeMessage": Subcommand(
        "message print",
        "t/topic=:1 b/brokerName=:--broker i/queueId=:--queue o/offset=:--from g/consumerGroup=:."
        " s/beginTimestamp=:@--begin e/endTimestamp=:@--end c/MessageNumber=128:--max",
    ),
    "exportMetadata": Subcommand(
        "report metadata",
        f"{_WHERE} f/filePath=:1 t/topic:--topics g/subscriptionGroup:--groups s/specialTopic:--all",
        "b c",
    ),
    "exportConfigs": Subcommand("report configs", "c/clusterName=:--cluster f/filePath=:1", "c"),
    "exportMetrics": Subcommand("report metrics", "c/clusterName=:--cluster f/filePath=:1", "c"),
    "startMonitoring": Subcommand("monitor --watch 60", ""),
    "createUser": Subcommand("user create", f"{_WHERE} u/username=:1 p/password=:--password t/userType=:--type", "b c"),
    "updateUser": Subcommand(
        "user update",
        f"{_WHERE} u/username=:1 p/password=:--password t/userType=:--type s/userStatus=:--status",
        "b c",
    ),
    "deleteUser": Subcommand("user delete", f"{_WHERE} u/username=:1", "b c"),
    "getUser": Subcommand("user get", f"{_WHERE} u/username=:1", "b c"),
    "listUser": Subcommand("user list", f"{_WHERE} f/filter=:--filter", "b c"),
    "copyUser": Subcommand("user copy", "f/fromBroker=:--from t/toBroker=:--to u/usernames=:*1"),
    "createAcl": Subcommand("acl create", f"{_WHERE} {_POLICY}", "b c"),
    "updateAcl": Subcommand("acl update", f"{_WHERE} {_POLICY}", "b c"),
    "deleteAcl": Subcommand("acl delete", f"{_WHERE} s/subject=:1 r/resources=:--resource", "b c"),
    "getAcl": Subcommand("acl get", f"{_WHERE} s/subject=:1", "b c"),
    "listAcl": Subcommand("acl list", f"{_WHERE} s/subject=:--subject r/resource=:--resource", "b c"),
    "copyAcl": Subcommand("acl copy", "f/fromBroker=:--from t/toBroker=:--to s/subjects=:*1"),
    "getColdDataFlowCtrInfo": Subcommand("broker cold-data get", _WHERE, "b c"),
    "updateColdDataFlowCtrGroupConfig": Subcommand(
        "broker cold-data set", f"{_WHERE} g/consumerGroup=:1 v/threshold=:2", "b c"
    ),
    "removeColdDataFlowCtrGroupConfig": Subcommand("broker cold-data remove", f"{_WHERE} g/consumerGroup=:1", "b c"),
    "setCommitLogReadAheadMode": Subcommand("broker read-ahead", f"{_WHERE} m/commitLogReadAheadMode=:1", "b c"),
    "switchTimerEngine": Subcommand("broker timer-engine", f"{_WHERE} e/engineType=:1", "b c"),
    "resetMasterFlushOffset": Subcommand("broker flush-offset", "b/brokerAddr=:--broker o/offset=:1", "b"),
    "getBrokerEpoch": Subcommand(
        "broker epoch", "c/clusterName=:--cluster b/brokerName=:--broker i/interval=:--watch", "b c"
    ),
    "exportPopRecord": Subcommand("broker export-pop", f"{_WHERE} d/dryRun=:?--dry-run", "b c"),
    "checkRocksdbCqWriteProgress": Subcommand(
        "broker rocksdb check", "c/cluster=:--cluster t/topic=:--topic cf/checkFrom=:@--begin", "c"
    ),
    "rocksDBConfigToJson": Subcommand(
        "broker rocksdb export",
        "b/brokerAddr=:--broker c/cluster=:--cluster t/configType=:kinds p/configPath=:!files e/exportFile=:!files"
        " j/jsonEnable=:~",
        "b c",
    ),
    "getBrokerLiteInfo": Subcommand("lite broker", "b/brokerAddr=:--broker c/cluster=:--cluster d/showDetail:.", "b c"),
    "getParentTopicInfo": Subcommand("lite parent", "p/parentTopic=:1"),
    "getLiteTopicInfo": Subcommand("lite topic", "p/parentTopic=:1 l/liteTopic=:2 s/showClientId:."),
    "getLiteClientInfo": Subcommand("lite client", "p/parentTopic=:1 c/clientId=:2 g/group=:--group s/showDetail:."),
    "getLiteGroupInfo": Subcommand(
        "lite group", "p/parentTopic=:1 g/group=:--group l/liteTopic=:--lite-topic k/topK=:--top"
    ),
    "triggerLiteDispatch": Subcommand(
        "lite dispatch", "p/parentTopic=:1 g/group=:--group c/clientId=:--client b/brokerName=:--broker"
    ),
    "haStatus": Subcommand("ha", f"{_WHERE} i/interval=:--watch"),
}


def mqadmin(context: typer.Context) -> None:
    """Call a command by its name and option letters in RocketMQ's mqadmin.

    The output is that of gantrymq admin; its options (--json, --profile, ...) may
    follow. Without a NAME all names are listed. As in mqadmin, the keys of
    ROCKETMQ_HOME/conf/tools.yml are used if no others are given.

    Examples of use:

        gantrymq mqadmin topicList -n 127.0.0.1:9876
        gantrymq mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t orders -r 4 -w 4
        gantrymq mqadmin consumerProgress -g invoices --json
        gantrymq mqadmin help topicStatus
    """
    from typer.main import get_command

    if context.args[:1] == ["--help"]:
        typer.echo(context.get_help())
        return
    if not context.args:
        _print_names()
        return
    words = with_account(translated(context.args))
    command = get_command(admin_application(words))
    with command.make_context("gantrymq admin", words) as inner:
        command.invoke(inner)


def _print_names() -> None:
    from gantrymq.cli.terminal import print_line

    rows = {name: f"gantrymq admin {subcommand.words}" for name, subcommand in SUBCOMMANDS.items()}
    rows |= {name: f"needs {needs}" for name, needs in UNSUPPORTED.items()}
    width = max(map(len, rows))
    for name in sorted(rows, key=str.lower):
        print_line(f"{name:{width}}  {rows[name]}")


def translated(arguments: Sequence[str]) -> list[str]:
    """The words of ``gantrymq admin`` for a call of mqadmin.

    Raises a usage error for an unknown subcommand or option, and MQClientError for what is not supported.
    """
    name, rest = arguments[0], list(arguments[1:])
    if name == "help" and rest:
        name, rest = rest[0], ["-h"]
    known = {name.lower(): name for name in (*SUBCOMMANDS, *UNSUPPORTED)}
    require(name.lower() in known, f"mqadmin has no subcommand {name!r}; `gantrymq mqadmin` lists them")
    name = known[name.lower()]
    if name in UNSUPPORTED:
        raise MQClientError(f"{name} needs {UNSUPPORTED[name]}")
    row = SUBCOMMANDS[name]
    options = _options(row)
    if "-h" in rest or "--help" in rest:
        _print_letters(name, row, options)
        return [*row.words.split(" "), "--help"]
    given, passed = _parsed(name, options, rest)
    required = row.one_of.split()
    require(not required or any(letter in given for letter in required), f"{name} needs -{' or -'.join(required)}")
    if name in _REWRITTEN:
        return [*_REWRITTEN[name](given), *passed]
    return [*row.words.split(" "), *_words(name, options, given), *passed]


def _print_letters(name: str, row: Subcommand, options: Sequence[_Option]) -> None:
    from gantrymq.cli.terminal import print_line

    print_line(f"mqadmin {name}: gantrymq admin {row.words}")
    meanings = {
        ".": "(no effect: it is shown anyway)",
        "~": "(no effect)",
        "kinds": "--kind",
        "method": "get, put or delete",
        "resend": "message resend",
        **{f"!{why}": f"(refused: it {text})" for why, text in _WHY.items()},
    }
    for option in options:
        target = option.target.lstrip("*?@")
        meaning = meanings.get(target, f"argument {target}" if target.isdigit() else target)
        print_line(f"  -{option.letter}, --{option.name}{'' if option.default is None else ' VALUE'}: {meaning}")


class _Option(NamedTuple):
    """An option of a subcommand. ``default`` is None if it has no value, and empty if it has no default."""

    letter: str
    name: str
    default: str | None
    target: str


def _options(row: Subcommand) -> list[_Option]:
    options = []
    for spec in row.options.split():
        names, _, target = spec.partition(":")
        match = re.fullmatch(r"(\w*)/(\w+)(?:(=)(.*))?", names)
        assert match, spec
        options.append(_Option(match[1] or match[2], match[2], match[4] if match[3] else None, target))
    return options


def _parsed(name: str, options: Sequence[_Option], words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The values by letter, and the words that are options of ``gantrymq admin``."""
    by_word = {f"-{option.letter}": option for option in options} | {f"--{option.name}": option for option in options}
    given: dict[str, str] = {}
    passed: list[str] = []
    rest = list(words)
    while rest:
        word, separator, value = rest.pop(0).partition("=")
        option = by_word.get(word)
        if option is not None and option.default is None:
            given[option.letter] = "true"
        elif option is not None:
            require(separator or rest, f"{name} -{option.letter} needs a value")
            given[option.letter] = value if separator else rest.pop(0)
        else:
            is_name_server = word in ("-n", "--namesrvAddr")
            require(
                is_name_server or word.startswith("--") or not word.startswith("-"),
                f"{name} has no option {word}; `gantrymq mqadmin help {name}` shows the options",
            )
            passed.append(("-n" if is_name_server else word) + (f"={value}" if separator else ""))
            if is_name_server and not separator:
                require(rest, f"{name} -n needs a value")
                passed.append(rest.pop(0))
    return {letter: value.strip() for letter, value in given.items()}, passed


def _words(name: str, options: Sequence[_Option], given: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    arguments: dict[int, list[str]] = {}
    for option in options:
        if option.letter not in given and not option.default:
            continue
        value = given.get(option.letter, option.default or "")
        target, many = option.target.removeprefix("*"), option.target.startswith("*")
        values = [item.strip() for item in value.split(",")] if many else [value]
        if target.startswith("!"):
            raise MQClientError(f"{name} -{option.letter} {_WHY[target[1:]]}")
        if target in (".", "~"):
            if target == "~" and option.letter in given:
                warn(f"{name} -{option.letter} has no effect")
        elif target.isdigit():
            arguments[int(target)] = values
        elif target.startswith("?"):
            on, _, off = target[1:].partition("/")
            flag = on if value.lower() == "true" else off
            words += [flag] if flag else []
        elif target.startswith("@"):
            words.append(f"{target[1:]}={_time(value)}")
        elif option.default is None:
            words.append(target)
        else:
            words += [f"{target}={value}" for value in values]
    # After "--" a value that begins with "-" is an argument too.
    values_in_order = [argument for position in sorted(arguments) for argument in arguments[position]]
    return [
        *words,
        *(
            []
            if not values_in_order
            else values_in_order
            if not any(word[:1] == "-" for word in values_in_order)
            else ["--", *values_in_order]
        ),
    ]


def _time(text: str) -> str:
    """mqadmin's ``yyyy-MM-dd#HH:mm:ss:SSS`` (local time) as milliseconds; any other text as it is."""
    if text == "now":
        return str(int(datetime.now().timestamp() * 1000))
    try:
        return str(int(datetime.strptime(text, _MQADMIN_TIME).astimezone().timestamp() * 1000))
    except ValueError:
        return text


def _by_message_id(words: str) -> Callable[[Mapping[str, str]], list[str]]:
    """A query; with a group and a client, the client consumes the message now."""

    def rewritten(given: Mapping[str, str]) -> list[str]:
        if "g" in given and "d" in given:
            require({"t", "i"} <= given.keys(), "-t and -i are needed")
            return ["message", "deliver", given["t"], given["i"], f"--group={given['g']}", f"--client={given['d']}"]
        name = "queryMsgById" if "by-id" in words else "queryMsgByUniqueKey"
        rest = {letter: value for letter, value in given.items() if letter not in ("g", "d")}
        if name == "queryMsgById" and rest.pop("s", "").lower() == "true":
            return ["message", "resend", *_words(name, _options(SUBCOMMANDS[name]), rest)]
        return [*words.split(" "), *_words(name, _options(SUBCOMMANDS[name]), rest)]

    return rewritten


def _setting(name: str) -> Callable[[Mapping[str, str]], list[str]]:
    """``-k KEY -v VALUE`` as one word."""

    def rewritten(given: Mapping[str, str]) -> list[str]:
        require({"k", "v"} <= given.keys(), f"{name} needs -k and -v")
        rest = {letter: value for letter, value in given.items() if letter not in ("k", "v")}
        row = SUBCOMMANDS[name]
        return [*row.words.split(" "), *_words(name, _options(row), rest), f"{given['k']}={given['v']}"]

    return rewritten


def _reset(given: Mapping[str, str]) -> list[str]:
    """An offset of one queue takes precedence over the time."""
    options = [option for option in _options(SUBCOMMANDS["resetOffsetByTime"]) if option.letter != "o"]
    if "o" in given and {"b", "q"} <= given.keys():
        options = [option for option in options if option.letter != "s"]
        return ["group", "reset", *_words("resetOffsetByTime", options, given), f"--to={given['o']}"]
    moment = _time(given.get("s", ""))
    if moment == "-1":
        given = {**given, "s": "latest"}
    elif moment.isdecimal():  # a small number would be an offset
        given = {**given, "s": datetime.fromtimestamp(int(moment) / 1000, UTC).isoformat()}
    return ["group", "reset", *_words("resetOffsetByTime", options, given)]


def _order_configuration(given: Mapping[str, str]) -> list[str]:
    from gantrymq.client.admin.topics import ORDER_TOPIC_CONFIG

    method = given.get("m", "")
    require(method in ("get", "put", "delete") and "t" in given, "updateOrderConf needs -t and -m get, put or delete")
    require(method != "put" or "v" in given, "updateOrderConf -m put needs -v")
    return ["kv", method, ORDER_TOPIC_CONFIG, given["t"], *([given["v"]] if method == "put" else [])]


def _kinds_of_tables(given: Mapping[str, str]) -> list[str]:
    """mqadmin separates the tables by semicolons."""
    row = SUBCOMMANDS["rocksDBConfigToJson"]
    options = [option for option in _options(row) if option.target != "kinds"]
    names = {name.lower(): name for name in ("topics", "subscriptionGroups", "consumerOffsets")}
    kinds = [item.strip() for item in given.get("t", "").split(";") if item.strip()]
    chosen = [f"--kind={names.get(kind.lower(), kind)}" for kind in kinds]
    return [*row.words.split(" "), *_words("rocksDBConfigToJson", options, given), *chosen]


def _all_messages(name: str) -> Callable[[Mapping[str, str]], list[str]]:
    """mqadmin prints all messages."""
    from gantrymq.model.java import LONG_MAX

    def rewritten(given: Mapping[str, str]) -> list[str]:
        row = SUBCOMMANDS[name]
        return [*row.words.split(" "), f"--max={LONG_MAX}", *_words(name, _options(row), given)]

    return rewritten


_REWRITTEN: dict[str, Callable[[Mapping[str, str]], list[str]]] = {
    "queryMsgById": _by_message_id("message by-id --tracks"),
    "queryMsgByUniqueKey": _by_message_id("message by-unique-key --tracks"),
    "updateBrokerConfig": _setting("updateBrokerConfig"),
    "updateNamesrvConfig": _setting("updateNamesrvConfig"),
    "resetOffsetByTime": _reset,
    "updateOrderConf": _order_configuration,
    "rocksDBConfigToJson": _kinds_of_tables,
    "printMsg": _all_messages("printMsg"),
    "printMsgByQueue": _all_messages("printMsgByQueue"),
}
