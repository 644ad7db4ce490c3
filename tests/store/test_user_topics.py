"""Which topics of a store an operator has to create again: not those that a broker makes itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.system_names import CHECKPOINT_TOPIC, SYSTEM_TOPICS
from gantrymq.store.lost_routes import user_topics


def with_queue(root: Path, topic: str) -> None:
    directory = root / topic / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(bytes(20))


@pytest.mark.parametrize("topic", sorted({*SYSTEM_TOPICS, CHECKPOINT_TOPIC, "rmq_sys_wheel_timer", "%RETRY%G"}))
def test_topic_made_by_broker_is_not_listed(tmp_path: Path, topic: str) -> None:
    with_queue(tmp_path, topic)
    with_queue(tmp_path, "orders")
    assert user_topics(RealFileSystem(), tmp_path) == {"orders"}
