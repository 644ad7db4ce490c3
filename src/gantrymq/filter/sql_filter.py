"""A compiled SQL92 expression, and a cache of them.

The grammar and Lark are imported when the first expression is parsed, so a process without SQL92 consumers never loads
them. That takes 0.1 s and more, so an event loop calls :meth:`SqlFilterCache.load` on a thread before.

Thread rule: one thread for a cache, except its ``load``; any thread for a filter.

Source: SqlFilter, SelectorParser.parse (PARSE_CACHE), ExpressionMessageFilter.isMatchedByCommitLog.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gantrymq.errors import FilterSyntaxError
from gantrymq.filter.values import EvaluationError

if TYPE_CHECKING:
    from gantrymq.filter.evaluate import Evaluate
    from gantrymq.filter.grammar import Parser

_CACHED_CHARACTERS = 1 << 20
_ENTRY_CHARACTERS = 100  # bytes that an entry of the cache takes in addition to its text


class SqlFilter:
    """A compiled expression. ``text`` is its source."""

    def __init__(self, text: str, evaluate: Evaluate) -> None:
        self.text, self._evaluate = text, evaluate

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, False, or None for null. Raises EvaluationError where Java's evaluation throws."""
        value = self._evaluate(properties)
        assert value is None or isinstance(value, bool), "the parser refuses what is no condition"
        return value

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties matches. Null and an EvaluationError mean that it does not."""
        try:
            return self._evaluate(properties) is True
        except EvaluationError:
            return False


class SqlFilterCache:
    """Compiles expressions, and keeps the most recently used results, errors included."""

    def __init__(self) -> None:
        self._parser: Parser | None = None
        self._cache: OrderedDict[str, SqlFilter | str] = OrderedDict()
        self._characters = 0

    @property
    def is_loaded(self) -> bool:
        """Whether the parser is there."""
        return self._parser is not None

    def load(self) -> None:
        """Import the grammar and make the parser. Thread rule: any thread."""
        from gantrymq.filter.grammar import Parser

        if self._parser is None:
            self._parser = Parser()

    def compile(self, text: str) -> SqlFilter:
        """The filter of an expression. Raises FilterSyntaxError."""
        cached = self._cache.get(text)
        if cached is None:
            cached = self._compile(text)
            self._keep(text, cached)
        else:
            self._cache.move_to_end(text)
        if isinstance(cached, str):
            raise FilterSyntaxError(cached)
        return cached

    def _compile(self, text: str) -> SqlFilter | str:
        """The filter, or the error of an invalid expression."""
        from gantrymq.filter.evaluate import compile_node

        self.load()
        assert self._parser is not None
        try:
            return SqlFilter(text, compile_node(self._parser.parse(text)))
        except FilterSyntaxError as error:
            return str(error)

    def _keep(self, text: str, compiled: SqlFilter | str) -> None:
        if len(text) > _CACHED_CHARACTERS // 16:  # longer than an expression may be: rejected without parsing
            return
        self._cache[text] = compiled
        self._characters += len(text) + _ENTRY_CHARACTERS
        while self._characters > _CACHED_CHARACTERS:
            oldest, _ = self._cache.popitem(last=False)
            self._characters -= len(oldest) + _ENTRY_CHARACTERS
