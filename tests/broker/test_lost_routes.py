"""A table of topics that is lost is a warning at the start: RocketMQ says nothing, and no client finds its messages."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_cases import BrokerCase
from structlog.testing import capture_logs

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import open_store

TOPICS = '{"topicConfigTable":{"orders":{"topicName":"orders"}}}'


def make_store(path: Path) -> None:
    with open_store(RealFileSystem(), path) as store:
        for topic in ("orders", "bills", "%RETRY%group", "SCHEDULE_TOPIC_XXXX"):
            store.put(Message(topic, b"x"))


def empty(config: Path) -> None:
    config.mkdir()


def blank(config: Path) -> None:
    config.mkdir()
    (config / "topics.json").write_bytes(bytes(10))


def other_tables(config: Path) -> None:
    config.mkdir()
    (config / "consumerOffset.json").write_text("{}")


async def warnings_at_start(path: Path) -> list[dict[str, object]]:
    with capture_logs() as lines:
        async with BrokerCase(path):
            pass
    return [dict(line) for line in lines if line["event"] == "the table of topics is lost"]


@pytest.mark.asyncio
@pytest.mark.parametrize("lose", [lambda config: None, empty, blank, other_tables])
async def test_lost_topic_table_causes_one_warning_at_start(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    make_store(tmp_path / "store")
    lose(tmp_path / "store/config")
    [line] = await warnings_at_start(tmp_path / "store")
    assert (line["log_level"], line["path"]) == ("warning", str(tmp_path / "store/config"))
    assert "2 topics have messages but no route (bills, orders)" in str(line["reason"])


@pytest.mark.asyncio
async def test_topic_table_with_topic_or_empty_store_causes_no_warning(tmp_path: Path) -> None:
    assert await warnings_at_start(tmp_path / "empty") == []
    make_store(tmp_path / "store")
    (tmp_path / "store/config").mkdir()
    (tmp_path / "store/config/topics.json").write_text(TOPICS)
    assert await warnings_at_start(tmp_path / "store") == []
    shutil.move(tmp_path / "store/config/topics.json", tmp_path / "store/config/topics.json.bak")
    assert await warnings_at_start(tmp_path / "store") == []
