"""The options of a landing, and those that a table remembers.

Thread rule: values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gantrymq.errors import ConfigError
from gantrymq.tables.bodies.body_format import BodyFormat
from gantrymq.tables.partitions import OPTION, PartitionBy
from gantrymq.tables.selection import TopicChoice
from gantrymq.tables.upserts import UpsertRule

_DEFAULT = PartitionBy(("day",))


@dataclass(frozen=True, slots=True)
class LandOptions:
    """What a table remembers: the topics, the body's format, and the partitions.

    None and the empty tuple stand for an option that was not given. :meth:`merged` takes it from the table. ``body``,
    ``schema`` and ``message`` are those of :func:`gantrymq.tables.bodies.formats.body_format`, and ``bodies`` is what
    the table remembers of the format. ``sources`` are those of the last landing, for the lag. ``ttl_s`` and
    ``expire_s`` are spans of the maintenance (:mod:`gantrymq.tables.maintenance`), of which 0 turns a step off.
    ``upsert_by`` and ``op_field`` are those of :mod:`gantrymq.tables.upserts`.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    retries: bool = False
    dlq: bool = False
    partition_by: PartitionBy | None = None
    body: str | None = None
    schema: str | None = None
    message: str | None = None
    bodies: Mapping[str, str] | None = None
    sources: tuple[str, ...] = ()
    ttl_s: float | None = None
    expire_s: float | None = None
    upsert_by: str | None = None
    op_field: str | None = None

    def merged(self, remembered: Mapping[str, Any]) -> LandOptions:
        """These options, completed by those of the table. Raises ConfigError for one that a table cannot change."""
        if not remembered:
            return replace(self, partition_by=self.partition_by or _DEFAULT)
        partition_by = PartitionBy.parse(remembered["partitionBy"])
        if self.partition_by not in (None, partition_by):
            raise ConfigError(OPTION, str(self.partition_by), f"{partition_by}, by which the table was made")
        has_choice = bool(self.topics or self.pattern)
        has_origin = bool(remembered["retries"] or remembered["dlq"])
        if (self.retries or self.dlq) and not has_origin:
            given = "--retries" if self.retries else "--dlq"
            raise ConfigError(given, "", "a table that was made with it: this one has no column origin_topic")
        upsert_by = _unchanged("--upsert-by", self.upsert_by, remembered.get("upsertBy"))
        op_field = _unchanged("--op-field", self.op_field, remembered.get("opField"))
        return LandOptions(
            self.topics if has_choice else tuple(remembered["topics"]),
            self.pattern if has_choice else remembered["pattern"],
            self.retries or bool(remembered["retries"]),
            self.dlq or bool(remembered["dlq"]),
            partition_by,
            self.body,
            self.schema,
            self.message,
            dict(remembered["bodies"]),
            self.sources or tuple(remembered["sources"]),
            remembered.get("ttl") if self.ttl_s is None else self.ttl_s,
            remembered.get("expire") if self.expire_s is None else self.expire_s,
            upsert_by,
            op_field,
        )

    def of_topic(self, topic: str) -> LandOptions:
        """The options of a table with one of the topics."""
        return replace(self, topics=(topic,), pattern=None)

    def as_json(self) -> dict[str, Any]:
        """What the table's state keeps."""
        return {
            "topics": list(self.topics),
            "pattern": self.pattern,
            "retries": self.retries,
            "dlq": self.dlq,
            "partitionBy": str(self.partition_by),
            "bodies": dict(self.bodies or {}),
            "sources": list(self.sources),
            "ttl": self.ttl_s,
            "expire": self.expire_s,
            "upsertBy": self.upsert_by,
            "opField": self.op_field,
        }

    def choice(self) -> TopicChoice:
        """The topics. Raises ConfigError without any."""
        return TopicChoice(self.topics, self.pattern, self.retries, self.dlq)

    def upserts(self) -> UpsertRule | None:
        """What makes a table with one row for each key; None for one with a row for each message.

        Raises ConfigError for options that contradict each other.
        """
        if self.upsert_by is None:
            if self.op_field is not None:
                raise ConfigError("--op-field", self.op_field, "only with --upsert-by")
            return None
        if self.retries or self.dlq:
            allowed = "not with --upsert-by: a message that is retried would replace the row of a newer one"
            raise ConfigError("--retries" if self.retries else "--dlq", True, allowed)
        return UpsertRule(self.upsert_by, self.op_field)

    def body_format(self) -> BodyFormat:
        """The format of the bodies. Raises ConfigError, SchemaError, and MissingExtraError.

        The columns of a table cannot become those of another kind of body.
        """
        from gantrymq.tables.bodies.formats import body_format

        known = (self.bodies or {}).get("body")
        kind = self.body or known or "raw"
        if known is not None and known != kind:
            raise ConfigError("--body", kind, f"{known}, whose columns the table has")
        return body_format(kind, self.schema, self.message, self.bodies)


def _unchanged(option: str, given: str | None, remembered: str | None) -> str | None:
    """The value that the table remembers. Raises ConfigError if another one is given."""
    if given not in (None, remembered):
        made = f"{remembered}, with which the table was made" if remembered else "a table that was made with it"
        raise ConfigError(option, given, made)
    return remembered
