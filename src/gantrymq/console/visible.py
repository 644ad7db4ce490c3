"""Makes characters visible that a browser would interpret, or not show: control characters and marks of direction.

A topic, a key or a body may hold any character. HTML escaping alone lets a right-to-left mark reorder a page, and
hides an escape sequence.
"""

from __future__ import annotations

_CONTROLS = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 "
    "NAK SYN ETB CAN EM SUB ESC FS GS RS US"
).split()
_DELETE = 0x7F
# Marks and embeddings of direction, separators, other characters without width, and tags. The joiners U+200C and
# U+200D stay: emoji and some scripts need them.
_NAMED = (
    *(0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
)
_SHOWN = {
    **{code: f"⟨{name}⟩" for code, name in enumerate(_CONTROLS)},
    _DELETE: "⟨DEL⟩",
    **{code: f"⟨U+{code:04X}⟩" for code in (*range(0x80, 0xA0), *_NAMED, *range(0xD800, 0xE000))},
}
_SHOWN_IN_TEXT = {code: shown for code, shown in _SHOWN.items() if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """``text`` in one line: each character without a shape of its own is replaced by its name or its number."""
    return text.translate(_SHOWN)


def visible_lines(text: str) -> str:
    """As :func:`visible`, but tabs and line ends stay. A line end of Windows counts as one."""
    return text.replace("\r\n", "\n").translate(_SHOWN_IN_TEXT)
