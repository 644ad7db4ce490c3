"""``gantrymq archive``, and ``check`` and ``restore`` for what it made."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.opened import read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.stop_signals import Interrupted, StopSignals, interrupt_on_sigterm
from gantrymq.cli.table.options import span_s
from gantrymq.cli.telling import Tell, telling
from gantrymq.cli.terminal import FINDINGS, print_line, progress, warn

if TYPE_CHECKING:
    from gantrymq.archive.archiver import Archiver, Round
    from gantrymq.archive.source import ArchiveSource
    from gantrymq.archive.summary import ArchiveSummary
    from gantrymq.config.reading import Reading

ArchiveUri = Annotated[
    str, typer.Argument(metavar="URI", help="The archive: a directory, or a URI such as s3://BUCKET/DIR.")
]
SignKey = Annotated[
    Path | None,
    typer.Option("--sign-key", metavar="FILE", dir_okay=False, help="A file with the secret that signs the summary."),
]


def archive(
    store: Store,
    uri: ArchiveUri,
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="SPAN", parser=span_s, help="Go on until SIGTERM, and look this often."),
    ] = None,
    sign_key: SignKey = None,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Put the whole log files of a store into an archive.

    The archive has the layout of a store: each log file that gets no more
    records, the queues and the index of these, the tables of config/, and
    archive.json, a summary with the SHA-256 of each file. A copy of it is a
    store. STORE may be in use by a broker or a mirror: it is only read, and not
    locked. A file that is being written waits until it is whole. URI may be
    s3://, gs://, or what else pyarrow or fsspec knows (the extra arrow). A
    killed archiver continues where it was. An archive of another log is
    refused. Damaged records are archived as they are, and reported: the exit
    code is 1 then. TMPDIR needs room for the newest files of queues and index.

    Check an archive with `gantrymq archive check URI`, and make a store of it
    with `gantrymq archive restore URI DIR`.

    Examples of use:

        gantrymq archive /data/store /backup/broker-a
        gantrymq archive /data/mirror s3://backup/broker-a --every 60s --sign-key secret
        gantrymq archive check s3://backup/broker-a --sign-key secret
        gantrymq archive restore s3://backup/broker-a /data/store2
    """
    from gantrymq.archive.archiver import Archiver
    from gantrymq.archive.summary import read_key
    from gantrymq.archive.target import open_target
    from gantrymq.clock import SystemClock
    from gantrymq.fs.real import RealFileSystem

    reading = read_options(config, set_)
    key, source = read_key(sign_key), _source(store, reading)
    _require_outside(source, uri)
    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        write = stack.enter_context(telling(_print, json=json))
        archiver = stack.enter_context(Archiver(source, open_target(uri, RealFileSystem()), SystemClock(), key))
        _follow(archiver, signals, every, _Report(uri, write))
        summary = archiver.summary
        _report_damage(summary, write, json=json)
        write(_fields("summary", uri, summary))
    if summary.damage:
        raise SystemExit(FINDINGS)


def check(uri: ArchiveUri, sign_key: SignKey = None, json: AsJson = False) -> None:
    """Read every file of an archive, and compare it with the summary.

    With --sign-key the summary must be signed with that key. A change of
    a file without the key is found. The exit code is 1 if a file is missing
    or differs, and 3 if the summary is missing or its signature is wrong.

    Examples of use:

        gantrymq archive check /backup/broker-a
        gantrymq archive check s3://backup/broker-a --sign-key secret --json
    """
    from gantrymq.archive.copies import check_archive, read_summary
    from gantrymq.archive.summary import read_key
    from gantrymq.archive.target import open_target
    from gantrymq.fs.real import RealFileSystem

    target, key, wrong = open_target(uri, RealFileSystem()), read_key(sign_key), 0
    summary = read_summary(target, key)
    with interrupt_on_sigterm(), telling(_print, json=json) as write, progress() as report:
        for name, text in check_archive(target, summary, report):
            wrong += 1
            write({"kind": "finding", "path": name, "text": text})
        _report_damage(summary, write, json=json)
        write({**_fields("summary", uri, summary), "findings": wrong, "signed": key is not None})
    if wrong or summary.damage:
        raise SystemExit(FINDINGS)


def restore(
    uri: ArchiveUri,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of the new store: missing, or empty.", readable=False)
    ],
    sign_key: SignKey = None,
    json: AsJson = False,
) -> None:
    """Make a store of an archive.

    Each file is compared with the summary, and DIR appears when all of them are
    right and durable. A broker can be started on it. A plain copy of an archive
    in a directory is a store, too.

    Examples of use:

        gantrymq archive restore s3://backup/broker-a /data/store
        gantrymq archive restore /backup/broker-a /data/store --sign-key secret
    """
    from gantrymq.archive.copies import restore_archive
    from gantrymq.archive.summary import read_key
    from gantrymq.archive.target import open_target
    from gantrymq.fs.real import RealFileSystem

    fs = RealFileSystem()
    target, key = open_target(uri, fs), read_key(sign_key)
    with interrupt_on_sigterm(), telling(_print, json=json) as write, progress() as report:
        summary = restore_archive(target, directory, fs, key, report)
        write({**_fields("summary", uri, summary), "store": str(directory)})


def _source(store: Path, reading: Reading) -> ArchiveSource:
    from gantrymq.archive.source import ArchiveSource
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.tools.read.store_source import StoreSource

    return ArchiveSource(StoreSource(RealFileSystem(), store, reading.config, reading.given))


def _require_outside(source: ArchiveSource, uri: str) -> None:
    from gantrymq.tools.locations import location_of

    location = location_of(uri)
    if location is not None and location.uri is None:
        source.paths.require_outside(Path(location.path))


def _follow(archiver: Archiver, signals: StopSignals, every_s: float | None, report: _Report) -> None:
    """Run rounds until nothing is left, or with ``every_s`` until a signal."""
    while True:
        with progress() as bar:
            done = archiver.run_round(bar)
        report.tell(archiver.summary, done)
        if signals.number is not None or (done.is_last and every_s is None):
            return
        if done.is_last and every_s is not None:
            try:
                signals.waiting(True)
                time.sleep(every_s)
            except Interrupted:
                return
            finally:
                signals.waiting_ended()


class _Report:
    """Prints what a round has archived, and each warning once."""

    def __init__(self, uri: str, write: Tell) -> None:
        self._uri, self._write = uri, write
        self._warned: set[str] = set()

    def tell(self, summary: ArchiveSummary, done: Round) -> None:
        """Print a round, unless it added no log file."""
        for name in done.unusable:
            if name not in self._warned:
                self._warned.add(name)
                warn(f"config/{name} cannot be used, so the archive has the version before, or none")
        if done.log_files:
            self._write({**_fields("progress", self._uri, summary), "newFiles": len(done.log_files)})


def _fields(kind: str, uri: str, summary: ArchiveSummary) -> dict[str, Any]:
    bases = summary.log_files
    return {
        "kind": kind,
        "archive": uri,
        "files": len(bases),
        "bytes": len(bases) * summary.log_size,
        "minOffset": summary.min_offset,
        "maxOffset": summary.max_offset,
        "otherFiles": len(summary.files) - len(bases),
        "damaged": len(summary.damage),
    }


def _report_damage(summary: ArchiveSummary, write: Tell, *, json: bool) -> None:
    for part in summary.damage:
        fields = {"phyOffset": part.begin, "lengthBytes": part.end - part.begin, "text": part.reason}
        write({"kind": "damage", "path": part.name, **fields})


def _print(fields: dict[str, Any]) -> None:
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text

    kind = fields["kind"]
    if kind == "damage":
        end = fields["phyOffset"] + fields["lengthBytes"]
        print_line(f"damage   {fields['path']}  offsets {fields['phyOffset']} to {end}: {fields['text']}")
    elif kind == "finding":
        print_line(f"finding  {fields['path']}: {fields['text']}")
    else:
        files = f"{count_text(fields['files'], 'log file')} ({size_text(fields['bytes'])})"
        offsets = f"offsets {fields['minOffset']} to {fields['maxOffset']}"
        print_line(f"{fields.get('store', fields['archive'])}: {files}; {offsets}")
        if "findings" in fields:
            signed = "its signature is right" if fields["signed"] else "no signature was checked"
            print_line(f"{count_text(fields['findings'], 'finding')}; {signed}")
