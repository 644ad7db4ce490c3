"""What maintenance is wanted of a table, and what it has done.

Thread rule: values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EXPIRE_S = 7 * 86_400.0
"""The age of versions and files that expire, if none is given."""

_LATE = 24


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """The steps. A span of 0 seconds turns a step off.

    ``is_exact`` is for a run that ends. One that repeats itself rewrites files less often: :attr:`ttl_slack_s`, and
    :mod:`gantrymq.tables.maintenance.small_files`.
    """

    compact: bool = False
    ttl_s: float = 0.0
    expire_s: float = 0.0
    is_exact: bool = True

    @classmethod
    def of(cls, *, compact: bool, ttl_s: float | None, expire_s: float | None, is_exact: bool) -> MaintenanceOptions:
        """The options, of which None was not given. Compaction and a TTL leave old files, so they expire."""
        if expire_s is None:
            expire_s = EXPIRE_S if compact or ttl_s else 0.0
        return cls(compact, ttl_s or 0.0, expire_s, is_exact)

    @property
    def is_any(self) -> bool:
        """Whether there is a step."""
        return bool(self.compact or self.ttl_s or self.expire_s)

    @property
    def ttl_slack_s(self) -> float:
        """How long a row may stay in a file with newer rows after its time."""
        return 0.0 if self.is_exact else self.ttl_s / _LATE

    @property
    def expire_pause_s(self) -> float:
        """The time between two searches for files that expire."""
        return 0.0 if self.is_exact else self.expire_s / _LATE


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done: files that became ``into`` others, rows that the TTL removed, files that are gone."""

    compacted: int = 0
    into: int = 0
    expired_rows: int = 0
    removed_files: int = 0
    freed_bytes: int = 0

    def __add__(self, other: Maintained) -> Maintained:
        """The sums."""
        return Maintained(
            self.compacted + other.compacted,
            self.into + other.into,
            self.expired_rows + other.expired_rows,
            self.removed_files + other.removed_files,
            self.freed_bytes + other.freed_bytes,
        )

    def as_json(self) -> dict[str, Any]:
        """The object that the command prints."""
        return {
            "kind": "maintenance",
            "compacted": self.compacted,
            "into": self.into,
            "expired_rows": self.expired_rows,
            "removed_files": self.removed_files,
            "freed_bytes": self.freed_bytes,
        }
