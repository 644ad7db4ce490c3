"""Queues that topics have by their configuration: of one that was never written to, no other file of a store tells.

A broker keeps its topics in ``config/topics.json`` of its store; a store without that file has the queues it has.

Source: TopicConfigManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from gantrymq.errors import RemotingCommandError
from gantrymq.format.names import CONFIG
from gantrymq.model.message_queue import MOST_QUEUES
from gantrymq.remoting.bodies.route import PERM_READ
from gantrymq.remoting.bodies.topic import TopicConfigSerializeWrapper
from gantrymq.remoting.body import decode_body
from gantrymq.spark.places import Place, content_of

_TOPICS = "topics.json"
_LOGGER = logging.getLogger(__name__)


def declared_queues(store: Place) -> Iterator[tuple[str, int]]:
    """(topic, queue id) of every queue that consumers see, by the configuration of the store's broker."""
    file = store / CONFIG / _TOPICS
    raw = content_of(file)
    if not raw:
        return
    try:
        topics = decode_body(TopicConfigSerializeWrapper, raw).topic_config_table
    except RemotingCommandError as error:
        _LOGGER.warning("%s tells no queues: %s", file, error)
        return
    for topic, config in topics.items():
        if config.perm & PERM_READ:
            for queue_id in range(min(config.read_queue_nums, MOST_QUEUES)):
                yield topic, queue_id
