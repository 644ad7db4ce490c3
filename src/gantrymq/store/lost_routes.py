"""Finds topics that no client can reach because the broker's table of topics is lost.

A broker keeps the table in ``config/topics.json``. If the file is missing or blank, the broker has no route to the
topics of the consume queues until a producer or an operator creates them again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gantrymq.format.names import CONSUMER_OFFSET
from gantrymq.fs.api import FileSystem
from gantrymq.model.system_names import is_system_topic
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.queue_listing import queue_directories

TOPICS = "topics.json"
_BROKER_TABLES = ("subscriptionGroup.json", CONSUMER_OFFSET)
_BLANK = b"\0 \t\r\n"


def user_topics(fs: FileSystem, consume_queue: Path) -> set[str]:
    """Return the topics below ``consume_queue`` that have a queue file, without those that a broker creates itself."""
    return {
        topic
        for topic, queue_id in queue_directories(fs, consume_queue)
        if not (topic.startswith("%") or is_system_topic(topic))
        and any(not entry.is_directory and entry.size_bytes for entry in fs.scan(consume_queue / topic / str(queue_id)))
    }


def lost_routes(fs: FileSystem, paths: StorePaths) -> str | None:
    """Return a description of the lost table of topics, or None if the table is not lost.

    A store that no broker has opened has not lost a table: it has no ``config/``, or one without any broker table.
    """
    if all(entry.name != paths.config.name for entry in fs.scan(paths.root)):
        return None
    entries = {entry.name: entry.size_bytes for entry in fs.scan(paths.config) if not entry.is_directory}
    is_brokers = not entries or any(name.removesuffix(".bak") in (*_BROKER_TABLES, TOPICS) for name in entries)
    tables = [name for name in (TOPICS, f"{TOPICS}.bak") if name in entries]
    if not is_brokers or any(_has_content(fs, paths.config / name) for name in tables):
        return None
    topics = user_topics(fs, paths.consume_queue)
    return describe(topics) if topics else None


def describe(topics: Collection[str]) -> str:
    """Return the text about ``topics`` without a route."""
    topic = "topic has" if len(topics) == 1 else "topics have"
    shown = ", ".join(sorted(topics)[:3]) + (", …" if len(topics) > 3 else "")
    return (
        f"holds no {TOPICS}: {len(topics)} {topic} messages but no route ({shown}); "
        "mount it or copy the file back, or create the topics again"
    )


def _has_content(fs: FileSystem, path: Path) -> bool:
    file = fs.open(path)
    try:
        return bool(file.read_at(0, 1 << 16).strip(_BLANK))
    finally:
        file.close()
