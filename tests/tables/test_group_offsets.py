"""``table land --commit-group``: tools of RocketMQ see the positions of a table as the offsets of a group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gantrymq import AdminClient, EmbeddedBroker, LitePullConsumer, Message, Producer
from gantrymq.cli.main import exit_code
from gantrymq.model.message_queue import MessageQueue
from gantrymq.tables.local.target import TableFormat
from tables.landing_cases import Lake, line, put

GROUP = "lake"
Land = Callable[..., tuple[int, str]]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def land(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Land:
    """Lands the topic fruit of a cluster; returns the exit code and stderr."""

    def run(namesrv: str, *arguments: str) -> tuple[int, str]:
        lake = Lake(tmp_path / "lake", TableFormat.PARQUET)
        command = ["table", "land", f"namesrv://{namesrv}", *lake.arguments, "--topic", "fruit", "--json"]
        code = exit_code([*command, *arguments])
        out, err = capfd.readouterr()
        assert not out or json.loads(out.splitlines()[-1])["kind"] == "summary"
        return code, err

    return run


def send(namesrv: str, count: int) -> None:
    with Producer(namesrv) as producer:
        for number in range(count):
            producer.send(Message("fruit", b"apple %d" % number))


def lags(namesrv: str, topic: str | None = None) -> dict[MessageQueue, tuple[int, int]]:
    """The committed offset of each queue, and the messages behind it."""
    with AdminClient(namesrv) as admin:
        stats = admin.consume_stats(GROUP, topic)
    return {
        queue: (stat.consumer_offset, stat.broker_offset - stat.consumer_offset)
        for queue, stat in stats.items()
        if queue.topic == "fruit"
    }


def test_offsets_of_group_follow_commits(broker: EmbeddedBroker, land: Land) -> None:
    send(broker.namesrv, 40)
    assert land(broker.namesrv, "--commit-group", GROUP, "--commit-rows", "7") == (0, "")
    before = lags(broker.namesrv)
    assert sum(offset for offset, _ in before.values()) == 40
    assert {lag for _, lag in before.values()} == {0}
    send(broker.namesrv, 5)
    assert sum(lag for _, lag in lags(broker.namesrv).values()) == 5
    assert land(broker.namesrv) == (0, "")  # the option is not remembered
    assert sum(lag for _, lag in lags(broker.namesrv).values()) == 5
    assert land(broker.namesrv, "--commit-group", GROUP) == (0, "")  # nothing is new, but the offsets are behind
    assert sum(offset for offset, _ in lags(broker.namesrv).values()) == 45


def test_group_not_created_by_broker_is_one_warning(land: Land) -> None:
    with EmbeddedBroker(settings={"autoCreateSubscriptionGroup": False}) as broker:
        send(broker.namesrv, 20)
        code, err = land(broker.namesrv, "--commit-group", GROUP, "--commit-rows", "4")
        assert code == 0
        assert err.count("\n") == 1
        assert "group lake are not up to date; the landing goes on" in err
        with AdminClient(broker.namesrv) as admin:
            admin.create_subscription_group(GROUP)
        assert land(broker.namesrv, "--commit-group", GROUP) == (0, "")
        assert sum(offset for offset, _ in lags(broker.namesrv, "fruit").values()) == 20


def test_group_with_consumers_is_refused(broker: EmbeddedBroker, land: Land, tmp_path: Path) -> None:
    send(broker.namesrv, 8)
    with LitePullConsumer(broker.namesrv, consumer_group=GROUP) as consumer:
        consumer.subscribe("fruit")
        consumer.poll()
        code, err = land(broker.namesrv, "--commit-group", GROUP)
    assert code == 2
    assert err.count("\n") == 1
    assert "a group of its own" in err
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("group", ["bad name", "CID_RMQ_SYS_lake", "%RETRY%lake", ""])
def test_invalid_group_name_is_refused(group: str, land: Land) -> None:
    code, err = land("127.0.0.1:1", "--commit-group", group)
    assert (code, err.count("\n")) == (2, 1)
    assert "--commit-group" in err


def test_group_for_store_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "store", [line(id=1)])
    arguments = [str(tmp_path / "store"), str(tmp_path / "lake"), "--topic", "orders", "--commit-group", GROUP]
    assert exit_code(["table", "land", *arguments]) == 2
    err = capfd.readouterr().err
    assert "--commit-group='lake' is not allowed: for a source namesrv://" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "lake").exists()
