"""``gantrymq store recover``."""

from __future__ import annotations

from typing import Annotated

import typer

from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.recovery import recover_store


def recover(
    store: Store,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and write nothing.")] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Recover a store as the start of a broker would, and close it cleanly.

    The first damaged record ends the log: it and everything after it are
    cut, in the log and in the queues. Entries that queues and index lack are
    added. A store that was closed is checked in the same way.

    Examples of use:

        gantrymq store recover /data/store --dry-run
        gantrymq store recover /data/store
        gantrymq store recover /data/store --set commitLogRecoverMaxNum=10
    """
    raise typer.Exit(recover_store(store, config, set_, dry_run=dry_run, json=json))
