"""The channel of a call has what a broker's code uses of a connection."""

from __future__ import annotations

import ast
from pathlib import Path

from gantrymq.grpc.brokers.local import InProcessChannel

SRC = Path(__file__).resolve().parents[2] / "src" / "gantrymq"
OF_A_TABLE = {"setdefault", "values"}  # a variable that is named after the channels in it


def test_in_process_channel_has_attributes_used_by_broker() -> None:
    """A broker takes it for a Channel, so mypy does not see what is missing."""
    used = set()
    for path in [*(SRC / "broker").rglob("*.py"), SRC / "remoting" / "transport" / "dispatcher.py"]:
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "channel." in text else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] == "channel":
                used.add(node.attr)
    assert {"respond", "respond_bytes", "address", "is_closed"} <= used
    assert used - OF_A_TABLE - set(dir(InProcessChannel)) == set()
