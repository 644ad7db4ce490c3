"""What to do about a damaged store, and what it would cost."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantrymq.tools.findings import Kind
    from gantrymq.tools.outlook import Outlook

_OF_LOG = ("log-", "length-", "blank-", "record-")
_OF_QUEUES = ("queue-", "message-", "index-")
_MISSING = "log-missing"
_MOUNT = "mount the disk, or give all directories of the log (-c), and verify again; else"
_OF_CHECKPOINT = ("checkpoint-",)
_OF_GROUPS = ("consumer-",)
_OF_FILES = ("file-size", "file-unreadable")
_LOG = ("commitlog",)
_QUEUES = ("consumequeue", "consumequeue_ext", "index")


def next_steps(path: Path, damaged: Collection[tuple[Kind, Path]], outlook: Outlook | None) -> list[tuple[str, str]]:
    """(label, text) of the command that helps, and of what others would cost; ``damaged`` is what was found where."""
    is_log = any(kind.value.startswith(_OF_LOG) or _is_file_of(_LOG, kind, file) for kind, file in damaged)
    is_queues = any(kind.value.startswith(_OF_QUEUES) or _is_file_of(_QUEUES, kind, file) for kind, file in damaged)
    if is_log or (outlook is not None and outlook.lost):
        is_missing = any(kind.value == _MISSING for kind, _ in damaged)
        steps = (
            ["mount the disk, or give all directories of the log (-c), and verify again; else"] if is_missing else []
        )
        steps += [f"gantrymq store salvage {path} OUT{_kept(outlook)}", *_cost_of_recover(path, outlook)]
    elif is_queues:
        whole = f", which has all {outlook.kept:,} messages" if outlook is not None else ""
        steps = [f"gantrymq store rebuild {path} makes queues and index again from the log{whole}"]
    elif any(kind.value.startswith(_OF_CHECKPOINT) for kind, _ in damaged):
        steps = [f"gantrymq store recover {path} makes the checkpoint again"]
    elif any(kind.value.startswith(_OF_GROUPS) for kind, _ in damaged):
        steps = [f"gantrymq store recover {path} sets consumer groups to the end of their queues"]
    else:
        return []
    return [("next" if number == 0 else "", text) for number, text in enumerate(steps)]


def _is_file_of(directories: Collection[str], kind: Kind, file: Path) -> bool:
    """Whether it is a file below one of the directories that is too short, or that the disk does not give back."""
    return kind.value in _OF_FILES and bool(file.parts) and file.parts[0] in directories


def _kept(outlook: Outlook | None) -> str:
    from gantrymq.cli.text import count_text
    from gantrymq.model.size import size_text

    if outlook is None:
        return " keeps what is whole"
    lost = f"; {count_text(outlook.lost, 'message')} known to be lost" if outlook.lost else ""
    return f" keeps {count_text(outlook.kept, 'message')}{lost} (takes about {size_text(outlook.salvage_bytes)})"


def _cost_of_recover(path: Path, outlook: Outlook | None) -> list[str]:
    from gantrymq.cli.text import count_text

    if outlook is None:
        return []
    if outlook.refusal is not None:
        return [f"gantrymq store recover {path} refuses: {outlook.refusal}"]
    if not outlook.cut:
        return [f"gantrymq store recover {path} would cut no message, and leave the damage"]
    cut = count_text(outlook.cut, "message")
    return [f"gantrymq store recover {path} would cut {cut}, among them {outlook.cut_whole:,} whole ones"]
