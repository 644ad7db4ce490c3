"""What a store was before: ``config/role.json``, which a slave, a promotion and the next master write.

===================  ==========================================================================================
field                meaning
===================  ==========================================================================================
copied               the store was a slave's. A master that opens it may have less progress than its log, so it
                     looks for deliveries in the log (``store/former_deliveries.py``) until it is closed cleanly
promotedTimestamp    when a person made the slave a master (ms). A start honours it although brokerRole=SLAVE
===================  ==========================================================================================

Thread rule: one thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gantrymq.format.names import ROLE
from gantrymq.fs.api import FileSystem
from gantrymq.store.config_files import ConfigFile


class Role(NamedTuple):
    """What a store was: a slave's, and ``promoted_ms``, 0 unless it was promoted."""

    was_slave: bool = False
    promoted_ms: int = 0


class RoleFile:
    """``role.json`` in the directory ``config``. Without the file the store was never a slave's."""

    def __init__(self, fs: FileSystem, config: Path) -> None:
        self._file = ConfigFile(fs, config / ROLE)

    def load(self) -> Role:
        """Return what the store was. Raises DiskError."""
        saved = self._file.load()
        promoted_ms = saved.get("promotedTimestamp")
        if type(promoted_ms) is not int or promoted_ms < 0:
            promoted_ms = 0
        return Role(saved.get("copied") is True, promoted_ms)

    def save(self, role: Role) -> None:
        """Replace what the store was, if it differs; durable on return. Raises DiskFullError."""
        if role != self.load():
            self._file.save({"copied": role.was_slave, "promotedTimestamp": role.promoted_ms})
