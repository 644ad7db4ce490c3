"""The range of a read: the starting and ending options as an offset for each queue.

A single timestamp has precedence over timestamps for each queue, and these over offsets, as in the Kafka connector.
"""

from __future__ import annotations

from gantrymq.errors import ConfigError
from gantrymq.spark.data_loss import within
from gantrymq.spark.option_texts import EARLIEST, LATEST, Positions
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan.origin import Extents, Offsets, Origin
from gantrymq.tools.queue_key import QueueKey


def starting(options: ReadOptions, origin: Origin, extents: Extents, *, streaming: bool) -> Offsets:
    """The first offset of each queue. Raises ConfigError, DataLossError."""
    if options.starting_timestamp_ms is not None:
        times = dict.fromkeys(extents, options.starting_timestamp_ms)
        return _first_since(options, origin, extents, times, "startingTimestamp")
    if options.starting_offsets_by_timestamp is not None:
        times = for_each(options.starting_offsets_by_timestamp, "startingOffsetsByTimestamp", extents)
        return _first_since(options, origin, extents, times, "startingOffsetsByTimestamp")
    chosen = options.starting_offsets or ("latest" if streaming else "earliest")
    return _offsets(chosen, "startingOffsets", options, extents)


def ending(options: ReadOptions, origin: Origin, extents: Extents) -> Offsets:
    """The offset after the last one of each queue. Raises ConfigError, DataLossError."""
    times = None
    if options.ending_timestamp_ms is not None:
        times = dict.fromkeys(extents, options.ending_timestamp_ms)
    elif options.ending_offsets_by_timestamp is not None:
        times = for_each(options.ending_offsets_by_timestamp, "endingOffsetsByTimestamp", extents)
    if times is not None:
        return {key: min(origin.offset_at(key, times[key]), extent.max_offset) for key, extent in extents.items()}
    return _offsets(options.ending_offsets or "latest", "endingOffsets", options, extents)


def is_whole(options: ReadOptions) -> bool:
    """Whether the options read every queue from its first to its last message."""
    return (
        options.starting_offsets in (None, "earliest")
        and options.ending_offsets in (None, "latest")
        and all(
            option is None
            for option in (
                options.starting_timestamp_ms,
                options.starting_offsets_by_timestamp,
                options.ending_timestamp_ms,
                options.ending_offsets_by_timestamp,
            )
        )
    )


def _offsets(chosen: str | Positions, name: str, options: ReadOptions, extents: Extents) -> Offsets:
    if chosen == "earliest":
        return {key: extent.min_offset for key, extent in extents.items()}
    if isinstance(chosen, str):
        return {key: extent.max_offset for key, extent in extents.items()}
    wanted = for_each(chosen, name, extents)
    special = {EARLIEST: 0, LATEST: 1}
    offsets = {key: extents[key][special[at]] if at in special else at for key, at in wanted.items()}
    return within(offsets, extents, fail=options.fail_on_data_loss)


def _first_since(
    options: ReadOptions, origin: Origin, extents: Extents, times: dict[QueueKey, int], name: str
) -> Offsets:
    offsets = {}
    for key, extent in extents.items():
        offsets[key] = max(origin.offset_at(key, times[key]), extent.min_offset)
        none_as_new = extent.min_offset < extent.max_offset <= offsets[key]
        if none_as_new and options.starting_offsets_by_timestamp_strategy == "error":
            allowed = (
                f"a time at or before the last message of {key}; startingOffsetsByTimestampStrategy=latest continues"
            )
            raise ConfigError(name, times[key], f"{allowed} with new messages")
    return offsets


def for_each(given: Positions, name: str, extents: Extents) -> dict[QueueKey, int]:
    """A number for each queue from JSON. Raises ConfigError if one is missing, or names no queue that is read."""
    offsets: dict[QueueKey, int] = {}
    for (topic, broker, queue_id), number in given.items():
        key = QueueKey(broker or _only_broker(topic, name, extents), topic, queue_id)
        if key not in extents:
            raise ConfigError(name, f"{topic}: {queue_id}", f"a queue that is read; {key} is not there or not chosen")
        offsets[key] = number
    missing = [key for key, extent in extents.items() if key not in offsets and extent.min_offset < extent.max_offset]
    if missing:
        raise ConfigError(name, str(missing[0]), f"an offset for every queue that is read; {len(missing)} are missing")
    # A queue without messages need not be named: in a topic with many queues, most may never have been written.
    return {key: offsets.get(key, EARLIEST if name.endswith("Offsets") else 0) for key in extents}


def _only_broker(topic: str, name: str, extents: Extents) -> str:
    """The broker of a topic. Raises ConfigError if it has none or several."""
    brokers = sorted({key.broker for key in extents if key.topic == topic})
    if not brokers:
        raise ConfigError(name, topic, f"a topic that is read; {topic} is not there or not chosen")
    if len(brokers) > 1:
        raise ConfigError(name, topic, f"with the broker, for there are {len(brokers)}: {', '.join(brokers)}")
    return brokers[0]
