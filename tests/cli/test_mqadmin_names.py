"""``gantrymq mqadmin``: every name of mqadmin becomes a call of ``gantrymq admin``, or says what it needs."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from cli_cases import Outcome, Run

from gantrymq import EmbeddedBroker
from gantrymq.cli.admin.commands import COMMANDS, admin_application
from gantrymq.cli.admin.mqadmin import SUBCOMMANDS, UNSUPPORTED, translated
from gantrymq.cli.admin.tools_file import with_account
from gantrymq.errors import MQClientError
from gantrymq.model.java import LONG_MAX

# Options that need one of few values; every other one takes the text 1.
VALUES = {
    ("setConsumeMode", "m"): "PULL",
    ("updateOrderConf", "m"): "put",
    ("updateTopic", "a"): "+a=b,-c",
    ("resetOffsetByTime", "s"): "now",
    ("queryMsgByKey", "p"): "T",
    **{(name, "t"): "Super" for name in ("createUser", "updateUser")},
    ("updateUser", "s"): "enable",
    **{(name, "a"): "Pub,Sub" for name in ("createAcl", "updateAcl")},
    **{(name, "d"): "Allow" for name in ("createAcl", "updateAcl")},
}


def options_of(name: str) -> list[tuple[str, str, bool]]:
    """Letter, target and whether it has a value, of each option."""
    specs = [one.partition(":") for one in SUBCOMMANDS[name].options.split()]
    return [(names.partition("/")[0], target, "=" in names) for names, _, target in specs]


def whole_call(name: str) -> list[str]:
    """A call with every option that is supported."""
    words = [name]
    for letter, target, has_value in options_of(name):
        if letter and not target.startswith("!") and target != "resend":
            words += [f"-{letter}", VALUES.get((name, letter), "1")] if has_value else [f"-{letter}"]
    return words


def understood(words: list[str]) -> bool:
    """Whether ``gantrymq admin`` accepts the words; nothing is run."""
    context, command, rest = None, typer.main.get_command(admin_application(words)), list(words)
    while True:
        context = command.make_context(command.name or "admin", rest, parent=context)
        if not hasattr(command, "resolve_command"):
            return True
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_mqadmin_call_with_all_options_becomes_admin_command(name: str) -> None:
    words = translated([*whole_call(name), "-n", "127.0.0.1:1", "--json"])
    if name == "updateOrderConf":
        assert words[:3] == ["kv", "put", "ORDER_TOPIC_CONFIG"]
    assert understood(words), words
    assert any(" ".join(words).startswith(command) for command in COMMANDS)


def test_every_subcommand_of_mqadmin_is_known() -> None:
    """5.5.0 has 96; a test with the real one compares the names."""
    assert len(SUBCOMMANDS) + len(UNSUPPORTED) == 96
    assert not SUBCOMMANDS.keys() & UNSUPPORTED.keys()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("topicStatus -t orders -n a:1", "topic status orders -n a:1"),
        ("TOPICROUTE --topic=orders -l", "topic route orders"),
        ("topicList -c --json", "topic list --detail --json"),
        ("deleteSubGroup -b a:1 -g g -r true", "group delete --broker=a:1 --remove-offset g"),
        ("deleteSubGroup -b a:1 -g g -r false", "group delete --broker=a:1 g"),
        ("updateBrokerConfig -c C -k key -v 1", "broker config set --cluster=C key=1"),
        ("resetOffsetByTime -g g -t t -s 5000", "group reset --topic=t --to=1970-01-01T00:00:05+00:00 g"),
        ("resetOffsetByTime -g g -t t -s -1 -f false", "group reset --topic=t --to=latest --only-back g"),
        (
            "resetOffsetByTime -g g -t t -s 0 -b a:1 -q 0 -o 7",
            "group reset --topic=t --broker=a:1 --queue=0 g --to=7",
        ),
        (
            "resetOffsetByTime -g g -t t -s 5 -b a:1 -q 0",
            "group reset --topic=t --to=1970-01-01T00:00:00.005000+00:00 --broker=a:1 --queue=0 g",
        ),
        ("skipAccumulatedMessage -g g -t t", "group reset --to latest --topic=t g"),
        ("queryMsgById -t t -i 1,2", "message by-id --tracks t 1 2"),
        ("queryMsgByUniqueKey -t t -i 1 -d c", "message by-unique-key --tracks t 1"),
        (
            "printMsgByQueue -t t -a b -i 0 -f true",
            f"message print --max={LONG_MAX} --broker=b --queue=0 --count-tags t",
        ),
        (
            "rocksDBConfigToJson -c C -t topics;subscriptiongroups",
            "broker rocksdb export --cluster=C --kind=topics --kind=subscriptionGroups",
        ),
        (
            "createAcl -c C -s User:a -r Topic:x,Group:* -a Pub,Sub -d Allow",
            "acl create --cluster=C --resource=Topic:x --resource=Group:* --action=Pub --action=Sub --decision=Allow"
            " User:a",
        ),
        ("copyUser -f a:1 -t b:1 -u x,y", "user copy --from=a:1 --to=b:1 x y"),
        (
            "updateTopic -b a:1 -t t -r 1 -w 1 -u true",
            "topic create --broker=a:1 --read-queues=1 --write-queues=1 --perm=6 --unit --no-unit-sub t",
        ),
        ("queryMsgById -t t -i 1,2 -s true", "message resend t 1 2"),
        ("queryMsgById -t t -i 1 -s false", "message by-id --tracks t 1"),
        ("queryMsgById -t t -i 1 -g g -d c", "message deliver t 1 --group=g --client=c"),
        ("sendMessage -t t -p -x", "message send -- t -x"),
        ("wipeWritePerm -b broker-a", "broker write-perm wipe broker-a"),
        ("help topicList", "topic list --help"),
    ],
)
def test_mqadmin_call_becomes_admin_command(call: str, words: str) -> None:
    assert translated(call.split()) == words.split()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("nosuch", "mqadmin has no subcommand 'nosuch'"),
        ("topicRoute -z 1", "topicRoute has no option -z"),
        ("topicRoute -t", "topicRoute -t needs a value"),
        ("updateTopic -t t", "updateTopic needs -b or -c"),
        ("updateOrderConf -t t -m burn", "-m get, put or delete"),
    ],
)
def test_wrong_mqadmin_call_is_usage_error(call: str, text: str) -> None:
    with pytest.raises(typer.BadParameter, match=text):
        translated(call.split())


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_mqadmin_subcommand_names_requirement(name: str) -> None:
    with pytest.raises(MQClientError, match=f"{name} needs "):
        translated([name, "-a", "x"])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def test_calls_do_the_same_as_those_of_admin(gantrymq: Run, broker: EmbeddedBroker) -> None:
    def call(name: str, *words: object) -> list[dict[str, object]]:
        outcome = gantrymq("mqadmin", name, *words, "-n", broker.namesrv, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.lines

    where = ("-c", "DefaultCluster")
    [made] = call("updateTopic", *where, "-t", "named", "-r", 2, "-o", "true")
    assert (made["readQueueNums"], made["writeQueueNums"], made["order"]) == (2, 8, True)
    assert call("updateOrderConf", "-t", "named", "-m", "get")[0]["value"] == "broker-a:8"
    [group] = call("updateSubGroup", *where, "-g", "grouped", "-r", 3)
    assert (group["retryMaxTimes"], group["consumeBroadcastEnable"]) == (3, False)
    sent = call("sendMessage", "-t", "named", "-p", "hello", "-k", "key9", "-b", "broker-a", "-i", 1)
    [found] = call("queryMsgByKey", "-t", "named", "-k", "key9")
    assert (found["msgId"], found["body"]) == (sent[0]["msgId"], "hello")
    assert [line["body"] for line in call("printMsg", "-t", "named")] == ["hello"]
    assert call("updateBrokerConfig", "-b", broker.address, "-k", "fileReservedTime", "-v", 47)[0]["value"] == "47"
    assert call("deleteTopic", *where, "-t", "named")
    for refused in (("electMaster", "-a", "x"), ("createUser", *where, "-u", "x", "-p", "y", "-n", broker.namesrv)):
        outcome = gantrymq("mqadmin", *refused)
        assert (outcome.code, outcome.err.count("\n")) == (3, 1)
    assert "topicStatus" in gantrymq("mqadmin").text
    for words in (("help", "updateTopic"), ("updateTopic", "-h"), ("updateTopic", "--help")):
        assert "--read-queues" in gantrymq("mqadmin", *words).text
    assert "mqadmin topicList -n" in gantrymq("mqadmin", "--help").text
    for refused in (("printMsg", "-t", "x", "-l", "y"), ("rocksDBConfigToJson", *where, "-p", "x")):
        outcome = gantrymq("mqadmin", *refused)
        assert (outcome.code, outcome.err.count("\n")) == (3, 1)
        assert "gantrymq does not" in outcome.err


def test_mqadmin_commands_for_java_features_answer_for_our_broker(gantrymq: Run, broker: EmbeddedBroker) -> None:
    def call(name: str, *words: object) -> Outcome:
        return gantrymq("mqadmin", name, *words, "-b", "broker-a", "-n", broker.namesrv, "--json")

    assert call("getColdDataFlowCtrInfo").lines[0]["coldData"].keys() >= {"runtimeTable", "configTable"}
    assert call("switchTimerEngine", "-e", "F").lines[0]["done"] == "the files of the wheel"
    assert call("resetMasterFlushOffset", "-o", 0).lines[0]["done"] == "master flush offset 0"
    assert call("exportPopRecord", "-d", "true").lines[0]["dryRun"]
    texts = {
        "switchTimerEngine -e R": "timerRocksDBEnable", "getBrokerEpoch": "only for controllerMode",
        "setCommitLogReadAheadMode -m 1": "does not have the feature", "listAcl": "there are no users here",
        "rocksDBConfigToJson": "does not have the feature", "getBrokerLiteInfo": "does not have the feature",
    }  # fmt: skip
    for line, text in texts.items():
        outcome = call(*line.split())
        assert (outcome.code, outcome.err.count("\n")) == (3, 1)
        assert text in outcome.err


def test_mqadmin_signs_with_account_of_tools_yml(
    gantrymq: Run, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "conf" / "tools.yml"
    file.parent.mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    monkeypatch.delenv("GANTRYMQ_ACCESS_KEY", raising=False)
    words = ["message", "send", "--", "orders", "-x"]
    assert with_account(words) == words  # without the file
    file.write_text('# mqadmin\'s\naccessKey: rocketmq2   # the administrator\nsecretKey: "12#34"\n')
    added = ["--access-key=rocketmq2", "--secret-key=12#34"]
    assert with_account(words) == ["message", "send", *added, "--", "orders", "-x"]
    assert with_account(["cluster"]) == ["cluster", *added]
    assert with_account(["cluster", "--profile=prod"]) == ["cluster", "--profile=prod"]
    monkeypatch.setenv("GANTRYMQ_ACCESS_KEY", "other")
    assert with_account(["cluster"]) == ["cluster"]
    monkeypatch.delenv("GANTRYMQ_ACCESS_KEY")
    file.write_text("accessKey: rocketmq2\n")
    outcome = gantrymq("mqadmin", "topicList", "-n", broker.namesrv)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "tools.yml" in outcome.err
    file.write_text("accessKey:\nsecretKey: ''\n")  # as RocketMQ takes it: no account
    assert gantrymq("mqadmin", "topicList", "-n", broker.namesrv).code == 0


def test_page_lists_every_subcommand_of_mqadmin() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "admin.md").read_text()
    table = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "commands_page.py"))["mqadmin"]()
    assert [line.split("`")[1] for line in table.splitlines()[2:]] == sorted(SUBCOMMANDS)
    for name, needs in UNSUPPORTED.items():
        assert any(f"`{name}`" in line and line.endswith(f"| {needs} |") for line in page.splitlines()), name
    for command in COMMANDS:
        *group, last = command.split(" ")
        assert any(f"`{command}" in line or (" ".join(group) in line and last in line) for line in page.splitlines())
