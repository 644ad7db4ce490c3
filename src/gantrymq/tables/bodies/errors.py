"""The errors of schemas, and why one body does not fit."""

from __future__ import annotations

from gantrymq.errors import ConfigError, GantrymqError

MAX_REASON_CHARACTERS = 400


class SchemaError(ConfigError):
    """A schema cannot be used. ``source`` names its file or its registry, ``why`` says what to change."""

    def __init__(self, source: str, why: str) -> None:
        GantrymqError.__init__(self, f"{source}: {why}")
        self.key, self.value, self.allowed = "--schema", source, why
        self.source, self.why = source, why


class MisfitError(GantrymqError):
    """A body does not fit. ``path`` names the field, ``why`` says what is wrong with its value."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(bounded(f"{path or 'body'}: {why}"))
        self.path, self.why = path, why


def bounded(text: str) -> str:
    """A text that is short enough for a column of reasons, in one line."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_REASON_CHARACTERS else text[: MAX_REASON_CHARACTERS - 1] + "…"
