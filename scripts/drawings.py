"""The drawings of docs/explanation/store-life.md as SVG, which site_hooks.py puts into the page.

A drawing is 400 units wide, so that its text is readable on a phone. Its colours are variables of docs/assets/site.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 400
_STEP = 46
_LINE = 15

Step = tuple[str, str, str] | tuple[str, str]  # an arrow (from, to, text), or a note (lane, text); | breaks a line
Segment = tuple[float, str, str]  # width (a part of 1), colour, text


def sequence(title: str, lanes: Sequence[str], steps: Sequence[Step]) -> str:
    """Who does what in which order: a column for each part, arrows between them from top to bottom."""
    at = {lane: round((number + 0.5) * WIDTH / len(lanes)) for number, lane in enumerate(lanes)}
    room = WIDTH // len(lanes) - 8
    shapes, y = [], 52
    for step in steps:
        lines = step[-1].split("|")
        height = _STEP + _LINE * (len(lines) - 1)
        if len(step) == 3:
            shapes.append(arrow(at[step[0]], at[step[1]], y + height - 14))
            middle = (at[step[0]] + at[step[1]]) // 2
            half = max(map(len, lines)) * 3.2
            middle = round(min(max(middle, half), WIDTH - half))
            shapes += text(middle, y + 14, lines, behind=True)
        else:
            wide = max(room, round(max(map(len, lines)) * 6.6) + 12)
            x = min(max(at[step[0]] - wide // 2, 1), WIDTH - wide - 1)
            shapes.append(box(x, y + 4, wide, height - 12, "good"))
            shapes += text(x + wide // 2, y + 22, lines)
        y += height
    heads = [box(x - room // 2, 2, room, 34, "box") for x in at.values()]
    heads += [line for lane, x in at.items() for line in text(x, 24, [lane])]
    lives = [f'<path d="M{x} 36V{y}" style="stroke:var(--line)" stroke-dasharray="3 4"/>' for x in at.values()]
    return svg(title, y + 6, [*lives, *heads, *shapes])


def bars(title: str, rows: Sequence[tuple[str, Sequence[Segment]]]) -> str:
    """Files as bars, one below the other, each with its name above."""
    shapes: list[str] = []
    y = 4
    for name, segments in rows:
        shapes += text(2, y + 14, name.split("|"), anchor="start")
        y += 8 + _LINE * len(name.split("|"))
        x = 2.0
        for part, colour, inside in segments:
            wide = part * (WIDTH - 4)
            shapes.append(box(round(x), y, round(wide), 34, colour))
            shapes += text(round(x + wide / 2), y + 21, [inside])
            x += wide
        y += 46
    return svg(title, y, shapes)


def arrow(start: int, end: int, y: int) -> str:
    """A horizontal arrow."""
    head = 7 if end > start else -7
    points = f"{end},{y} {end - head},{y - 4} {end - head},{y + 4}"
    line = f'<path d="M{start} {y}H{end - head}" style="stroke:var(--line)" stroke-width="1.5"/>'
    return f'{line}<polygon points="{points}" style="fill:var(--line)"/>'


def box(x: int, y: int, width: int, height: int, colour: str) -> str:
    """A rectangle in one of the colours."""
    style = f"fill:var(--{colour});stroke:var(--line)"
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" style="{style}"/>'


def text(x: int, y: int, lines: Sequence[str], *, anchor: str = "middle", behind: bool = False) -> list[str]:
    """Lines of text; ``behind`` hides the dashed lines behind them."""
    halo = ";paint-order:stroke;stroke:var(--md-default-bg-color,transparent);stroke-width:4px" if behind else ""
    return [
        f'<text x="{x}" y="{y + number * _LINE}" text-anchor="{anchor}" style="fill:var(--text){halo}">'
        f"{escape(line)}</text>"
        for number, line in enumerate(lines)
    ]


def svg(title: str, height: int, shapes: Sequence[str]) -> str:
    """The element."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12.5" aria-label="{escape(title)}">'
    )
    return "\n".join([head, *shapes, "</svg>", ""])


DRAWINGS = {
    "append": sequence(
        "A send: append, then acknowledge",
        ["producer", "broker", "commit log"],
        [
            ("producer", "broker", "send"),
            ("broker", "commit log", "append the record"),
            ("commit log", "in the page cache:|a kill does not lose it"),
            ("broker", "commit log", "SYNC_FLUSH only:|wait for a sync"),
            ("broker", "producer", "SEND_OK"),
        ],
    ),
    "dispatch": sequence(
        "Dispatch: from the log into queues and index",
        ["commit log", "dispatch", "queue", "index"],
        [
            ("commit log", "dispatch", "new records"),
            ("dispatch", "queue", "20 bytes each"),
            ("dispatch", "index", "an entry a key"),
            ("queue", "wakes the pulls|that wait for it"),
        ],
    ),
    "flush": bars(
        "How far each file is on the disk",
        [
            (
                "commit log: flushed, and only written",
                [(0.7, "good", "on the disk"), (0.2, "old", "page cache"), (0.1, "box", "")],
            ),
            (
                "queues: flushed later than the log",
                [(0.5, "good", "on the disk"), (0.3, "old", "page cache"), (0.2, "box", "")],
            ),
            ("index: flushed last", [(0.3, "good", "on the disk"), (0.5, "old", "page cache"), (0.2, "box", "")]),
            (
                "checkpoint: the time up to which|a kind of file is on the disk",
                [(0.3, "good", "all of them"), (0.2, "good", "log, queues"), (0.2, "good", "log"), (0.3, "box", "")],
            ),
        ],
    ),
    "crash": bars(
        "What a kill and a power cut leave",
        [
            (
                "after a kill: everything that was written",
                [(0.7, "good", "on the disk"), (0.2, "good", "still there"), (0.1, "box", "")],
            ),
            (
                "after a power cut: what was flushed, and a part|of the rest, perhaps torn",
                [(0.7, "good", "on the disk"), (0.08, "bad", "?"), (0.22, "box", "lost")],
            ),
            (
                "queues: may lack their newest units",
                [(0.5, "good", "on the disk"), (0.15, "bad", "?"), (0.35, "box", "lost")],
            ),
            ("the file abort: the store was not closed", [(0.3, "bad", "abort"), (0.7, "box", "")]),
        ],
    ),
    "recovery": bars(
        "What a recovery reads and writes",
        [
            (
                "1. find the file to begin with:|the checkpoint covers everything before it",
                [(0.25, "old", "covered"), (0.25, "good", "begin"), (0.5, "box", "")],
            ),
            (
                "2. read on, every record with its CRC",
                [(0.25, "old", "covered"), (0.55, "good", "whole records"), (0.06, "bad", ""), (0.14, "box", "")],
            ),
            (
                "3. end the log after the last whole record,|and fill the rest with zeros",
                [(0.25, "old", "covered"), (0.55, "good", "the log"), (0.2, "box", "zeros")],
            ),
            (
                "4. cut the queues there, dispatch what they lack",
                [(0.5, "old", "kept"), (0.3, "good", "written again"), (0.2, "box", "")],
            ),
        ],
    ),
    "timer": sequence(
        "A timer message",
        ["producer", "broker", "timer wheel", "consumer"],
        [
            ("producer", "broker", "send, due in an hour"),
            ("broker", "kept in the topic|rmq_sys_wheel_timer"),
            ("broker", "timer wheel", "a slot for|each second"),
            ("timer wheel", "the hour passes"),
            ("timer wheel", "broker", "due: put it into|its own topic"),
            ("broker", "consumer", "delivered as any message"),
        ],
    ),
    "transaction": sequence(
        "A transaction",
        ["producer", "broker", "consumer"],
        [
            ("producer", "broker", "half message"),
            ("broker", "in a topic that|no consumer reads"),
            ("producer", "the local transaction"),
            ("producer", "broker", "commit or rollback"),
            ("broker", "producer", "no decision after 6 s:|what became of it?"),
            ("broker", "consumer", "commit: delivered|in its own topic"),
            ("broker", "an op message says|that it is decided"),
        ],
    ),
    "pop": sequence(
        "POP: a message is lent, not assigned",
        ["consumer", "broker", "revive topic"],
        [
            ("consumer", "broker", "pop, invisible for 60 s"),
            ("broker", "revive topic", "checkpoint: which|messages are out"),
            ("broker", "consumer", "messages with receipts"),
            ("consumer", "broker", "ack"),
            ("broker", "revive topic", "acknowledgement"),
            ("revive topic", "after 60 s both|are compared"),
            ("revive topic", "broker", "not acknowledged:|into the retry topic"),
            ("broker", "consumer", "delivered again"),
        ],
    ),
}
