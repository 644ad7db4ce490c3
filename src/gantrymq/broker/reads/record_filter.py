"""Evaluates a group's SQL92 filter on records of the log, within a budget for each pull.

An expression of the largest size over 800 messages would hold the event loop for a second. Work is therefore counted in
characters of the expression, and a pull that has used its budget returns what it has found.

Source: ExpressionMessageFilter.isMatchedByCommitLog, ExpressionForRetryMessageFilter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantrymq.filter.sql_filter import SqlFilter
from gantrymq.format.properties import decode_properties
from gantrymq.format.record import Layout, read_layout
from gantrymq.model.message import PROPERTY_RETRY_TOPIC

_BUDGET = 400_000  # the work of about 30 ms
_RECORD_COST = 50
_PARSE_COST = 25  # the weight of a character that may have to be parsed first
_WORK_BYTES = 256  # bytes of properties; for each of them the expression is counted once more

FindFilter = Callable[[str], SqlFilter | None]


class RecordFilter:
    """The filter of a pull. ``find_for_topic`` is set for a retry topic with filterSupportRetry.

    It returns the group's filter for the original topic of a message of the retry topic. None accepts the message.
    """

    def __init__(self, sql: SqlFilter, find_for_topic: FindFilter | None = None) -> None:
        self._sql, self._find_for_topic = sql, find_for_topic

    def begin(self) -> FilterRun:
        """The filter with a fresh budget."""
        return FilterRun(self._choose, 1 if self._find_for_topic is None else _PARSE_COST)

    def _choose(self, properties: Mapping[str, str]) -> SqlFilter | None:
        if self._find_for_topic is None:
            return self._sql
        return self._find_for_topic(properties.get(PROPERTY_RETRY_TOPIC, ""))


class FilterRun:
    """The use of a filter by one pull, within its budget."""

    def __init__(self, choose: Callable[[Mapping[str, str]], SqlFilter | None], cost: int) -> None:
        self._choose, self._cost, self._left = choose, cost, _BUDGET

    @property
    def is_used_up(self) -> bool:
        """Whether the budget is spent: test no further record in this turn of the event loop."""
        return self._left <= 0

    def matches(self, record: memoryview) -> bool:
        """Whether a record matches. An unreadable record matches, so that the consumer reports the damage."""
        layout = read_layout(record, 0, len(record))
        if not isinstance(layout, Layout):
            return True
        raw = bytes(record[layout.properties_at : layout.properties_at + layout.properties_length])
        properties = decode_properties(raw)
        sql = self._choose(properties)
        cost = self._cost * len(sql.text) if sql is not None else 0
        self._left -= _RECORD_COST + len(raw) + cost * (1 + len(raw) // _WORK_BYTES)
        return sql is None or sql.matches(properties)
