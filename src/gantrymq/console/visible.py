"""Makes characters visible that a browser would interpret, or not show: control characters and marks of direction.

A topic, a key or a body may hold any character. HTML escaping alone lets a right-to-left mark reorder a page, and
hides an escape sequence.
"""

from __future__ import annotations

_PICTURES = 0x2400  # U+2400 is the picture of U+0000
_DELETE = 0x7F
# Marks and embeddings of direction, separators, other characters without width, and tags. The joiners U+200C and
# U+200D stay: emoji and some scripts need them.
_NAMED = (
    *(0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
)
_SHOWN = {
    **{code: chr(_PICTURES + code) for code in range(0x20)},
    _DELETE: "␡",
    **{code: f"⟨U+{code:04X}⟩" for code in (*range(0x80, 0xA0), *_NAMED, *range(0xD800, 0xE000))},
}
_SHOWN_IN_TEXT = {code: shown for code, shown in _SHOWN.items() if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """``text`` in one line: each character without a shape of its own is replaced by its picture or its number."""
    return text.translate(_SHOWN)


def visible_lines(text: str) -> str:
    """As :func:`visible`, but tabs and line ends stay. A line end of Windows counts as one."""
    return text.replace("\r\n", "\n").translate(_SHOWN_IN_TEXT)
