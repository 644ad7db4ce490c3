"""The help text of a command, made of its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_EXAMPLES = "Examples of use:"


def help_text(command: Callable[..., Any]) -> str:
    """The docstring, with an empty paragraph before examples that are its second paragraph.

    Typer removes the indent that all lines but the first after the summary share. The empty paragraph, which is not
    shown, is then the first, and the examples keep theirs.
    """
    text = inspect.cleandoc(command.__doc__ or "")
    summary, blank, rest = text.partition("\n\n")
    return f"{summary}\n\n\n\n{rest}" if blank and rest.startswith(_EXAMPLES) else text
