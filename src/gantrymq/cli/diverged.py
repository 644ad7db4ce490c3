"""``gantrymq store diverged``: what a slave has and its master does not have."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_writing_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.terminal import FINDINGS, print_line

if TYPE_CHECKING:
    from pathlib import Path

    from gantrymq.config.reading import Reading
    from gantrymq.ha.divergence import Divergence


def diverged(
    store: Store,
    cut: Annotated[bool, typer.Option("--cut", help="Cut the messages, and keep them beside the store.")] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Print the messages of a slave that its master does not have, or cut them.

    A slave whose log is ahead of its master's, or another one from some offset
    on, notes that offset and stops copying. This prints the records from there
    on, also while the slave runs. With --cut they leave the log, the queues and
    the index; stop the slave first. The cut records are kept in STORE/diverged,
    and `store salvage` makes a store of them. The exit code is 1 if there are
    such messages and they were not cut.

    Examples of use:

        gantrymq store diverged /data/store
        gantrymq store diverged /data/store --cut
    """
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.ha.divergence import DivergenceFile
    from gantrymq.ha.log_cut import cut as cut_log
    from gantrymq.store.geometry import require_store
    from gantrymq.store.paths import StorePaths

    reading, fs = read_writing_options(config, set_), RealFileSystem()
    paths = StorePaths.of(store, reading.config)
    require_store(fs, paths)
    known = DivergenceFile(fs, paths.config).load()
    if known is None:
        _write({"kind": "summary", "messages": 0, "cut": False}, "no message is known that the master lacks", json=json)
        return
    span = f"offsets {known.cut_offset} to {known.end_offset}, which the master {known.master} does not have"
    fields = {"kind": "summary", "cutOffset": known.cut_offset, "endOffset": known.end_offset, "master": known.master}
    if not cut:
        _show(store, reading, known, json=json)
        _write({**fields, "cut": False}, f"{span}; stop the slave and add --cut", json=json)
        raise typer.Exit(FINDINGS)
    done = cut_log(store, reading.config, fs)
    directory = str(done.directory) if done is not None else None
    _write({**fields, "cut": True, "directory": directory}, f"cut: {span}; kept in {directory}", json=json)


def _show(store: Path, reading: Reading, known: Divergence, *, json: bool) -> None:
    from gantrymq.cli.log import log_items, open_log, print_json, print_text

    opened = open_log(store, reading)
    with closing(opened.log):
        (print_json if json else print_text)(log_items(opened, known.cut_offset))


def _write(fields: dict[str, object], text: str, *, json: bool) -> None:
    if not json:
        print_line(text)
        return
    from gantrymq.cli.json_lines import JsonLines

    with JsonLines() as out:
        out.write(fields)
