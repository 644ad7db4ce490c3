"""The settings that a command works with, and what came with them. Made by :mod:`gantrymq.config.properties`.

Without a key there is nothing to look up in the tables of keys, which take a tenth of the start of a command: then
``Reading()`` is what :func:`gantrymq.config.properties.read_settings` returns for no entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from gantrymq.config.settings import MessageStoreConfig

if TYPE_CHECKING:
    from gantrymq.config.guards import Reason
    from gantrymq.config.refused_keys import Work


class Reading(NamedTuple):
    """The settings, the keys that were given, and warnings for a person. ``entries`` are the texts of all keys."""

    config: MessageStoreConfig = MessageStoreConfig()
    given: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    entries: Mapping[str, str] = {}

    def require_honoured(self, work: Work) -> list[Reason]:
        """Raise NotHonouredError for a key with which ``work`` on the store is refused.

        Returns the reasons that acceptWithoutEffect accepts.
        """
        from gantrymq.config.guards import accepted_names, require_honoured
        from gantrymq.config.refused_keys import ServerKind, refused_keys

        reasons = refused_keys(self.entries, ServerKind.BROKER, work)
        return require_honoured(reasons, accepted_names(self.config.accept_without_effect))
