"""docs/grpc.md: its example runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text("utf-8")


def test_documented_python_example_runs() -> None:
    (example,) = re.findall("```python\n(.*?)```", PAGE, re.DOTALL)
    seen: dict[str, Any] = {}
    exec(example, seen)
    assert seen["received"].body == b"one bicycle"
