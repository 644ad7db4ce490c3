"""``gantrymq store info``."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from gantrymq.cli.opened import end_reading, read_options
from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store

if TYPE_CHECKING:
    from gantrymq.tools.summary import StoreSummary


def info(store: Store, config: ConfigFile = None, set_: Settings = None, json: AsJson = False) -> None:
    """Print a summary of a store: offsets, messages, checkpoint, whether it was closed.

    The output is that of the store after a recovery. Nothing is written. The
    time does not depend on the size of a store that was closed, or that a
    broker has open: only its last records are read. `store verify` reads all.

    Examples of use:

        gantrymq store info /data/store
        gantrymq store info /data/store --json
    """
    from gantrymq.cli.opened import open_reader
    from gantrymq.tools.summary import summarize

    with closing(open_reader(store, read_options(config, set_), trusts_writer=True)) as reader:
        summary = summarize(store, reader)
        if json:
            from gantrymq.cli.json_lines import JsonLines

            with JsonLines() as out:
                out.write(_fields(summary))
        else:
            _print(summary)
        end_reading(reader.problems, notes=reader.notes)


def _fields(summary: StoreSummary) -> dict[str, object]:
    page = summary.checkpoint
    return {
        "store": str(summary.path),
        "minPhyOffset": summary.min_phy_offset,
        "maxPhyOffset": summary.max_phy_offset,
        "abort": not summary.last_exit_ok,
        "lockedBy": summary.lock_holder,
        "checkpoint": {
            "physicMsgTimestamp": page.physic_msg_timestamp_ms,
            "logicsMsgTimestamp": page.logics_msg_timestamp_ms,
            "indexMsgTimestamp": page.index_msg_timestamp_ms,
            "masterFlushedOffset": page.master_flushed_offset,
            "confirmPhyOffset": page.confirm_phy_offset,
            "logicsPhysicalOffset": page.logics_physical_offset,
        },
        "fileSizes": {
            "mappedFileSizeCommitLog": summary.log_file_size,
            "mappedFileSizeConsumeQueue": summary.queue_file_size,
            "index": max(summary.index_sizes, default=None),
        },
        "files": {
            "commitLog": summary.log_files,
            "consumeQueue": summary.queue_files,
            "index": len(summary.index_sizes),
        },
        "topics": len(summary.topics),
        "queues": summary.queues,
        "messages": summary.messages,
        "bytes": summary.record_bytes,
        "problems": [{"path": str(path), "text": text} for path, text in (*summary.problems, *summary.notes)],
    }


def _print(summary: StoreSummary) -> None:
    from gantrymq.cli.terminal import print_pairs, print_table
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text, time_text

    page, index_sizes = summary.checkpoint, summary.index_sizes
    log_text = f"{count_text(summary.log_files, 'file')} of {size_text(summary.log_file_size)}"
    offsets = f"offsets {summary.min_phy_offset} to {summary.max_phy_offset}"
    pairs = [
        ("state", summary.state),
        ("commit log", f"{log_text}, {offsets}" if summary.log_files else "empty"),
        ("records", size_text(summary.record_bytes)),
        ("index", f"{count_text(len(index_sizes), 'file')}, {size_text(sum(index_sizes))}"),
        ("messages", f"{summary.messages:,} in {count_text(summary.queues, 'queue')}"),
        ("checkpoint", f"log flushed up to   {time_text(page.physic_msg_timestamp_ms)}"),
        ("", f"queues flushed up to {time_text(page.logics_msg_timestamp_ms)}"),
        ("", f"index flushed up to  {time_text(page.index_msg_timestamp_ms)}"),
    ]
    pairs += [("config", text) for path, text in summary.notes if path == summary.path / "config"]
    print_pairs(str(summary.path), pairs)
    if summary.topics:
        rows = [(topic.topic, f"{topic.queues:,}", f"{topic.messages:,}") for topic in summary.topics]
        print_table(["topic", ">queues", ">messages"], rows)
