"""The current settings, as tools read and change them while the name server runs.

Source: Configuration, DefaultRequestProcessor (updateConfig, getConfig).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gantrymq.config.auth_settings import CREDENTIALS
from gantrymq.config.keys import check_length, read_fields, require_same_at_start, write_fields
from gantrymq.config.properties import amended
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.namesrv.settings import OWN_KEYS, WITHOUT_EFFECT, NamesrvConfig, acts, require_honoured

_NEVER_UPDATED = {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}


class NamesrvConfiguration:
    """``config`` has the current settings. ``others`` are keys without effect here, which are shown and stored too.

    Thread rule: the event loop's thread.
    """

    def __init__(self, fs: FileSystem, config: NamesrvConfig, others: Mapping[str, str] | None = None) -> None:
        self.config = config
        self._others = WITHOUT_EFFECT | {key: text for key, text in (others or {}).items() if not acts(key)}
        self._black_list = _NEVER_UPDATED | set(config.config_black_list.split(";"))
        self._file = ReplacedFile(fs, Path(config.config_store_path).resolve())
        self._writing = asyncio.Lock()

    def is_black(self, entries: Mapping[str, str]) -> bool:
        """Whether one of the keys may not be changed (configBlackList)."""
        return not self._black_list.isdisjoint(entries)

    def text(self) -> str:
        """The settings as properties, sorted by key; without those of gantrymq's own keys that have their default.

        Nothing is escaped, as in RocketMQ's answer (properties2String).
        """
        return "".join(f"{key}={text}\n" for key, text in _shown(self.config, self._others).items())

    async def update(self, entries: Mapping[str, str]) -> None:
        """Set all ``entries`` or none, and store them in configStorePath. Keys that are not shown are ignored.

        An existing file keeps its comments and other lines; a new file gets all settings. Raises ConfigError for an
        invalid value or a change of a key that is read only at the start, NotHonouredError for a value that cannot be
        honoured, and OSError or DiskFullError if the file cannot be written.
        """
        async with self._writing:
            config = replace(self.config, **read_fields(NamesrvConfig, entries))
            require_same_at_start(self.config, config)
            for key in entries.keys() & self._others.keys():
                check_length(key, entries[key])
            others = {key: entries.get(key, text) for key, text in self._others.items()}
            require_honoured(self.config, others)
            # No tls.*, which would take effect at the next start.
            settable = write_fields(config).keys() | others.keys()
            known = {key: text for key, text in entries.items() if key in settable}
            await asyncio.get_running_loop().run_in_executor(None, self._keep, known, _shown(config, others))
            self.config, self._others = config, others

    def _keep(self, changed: Mapping[str, str], everything: Mapping[str, str]) -> None:
        before = next(self._file.versions(), b"").decode("utf-8", "surrogateescape")
        text = amended(before, changed if before.strip() else everything)
        self._file.replace(text.encode("utf-8", "surrogateescape"))


def _shown(config: NamesrvConfig, others: Mapping[str, str]) -> dict[str, str]:
    """RocketMQ's keys, as its name server shows them, and of gantrymq's own keys those that were changed."""
    fields, defaults = write_fields(config), write_fields(NamesrvConfig())
    fields = {
        key: text
        for key, text in fields.items()
        if key not in CREDENTIALS and (key not in OWN_KEYS or text != defaults[key])
    }
    return dict(sorted({**others, **fields}.items()))
