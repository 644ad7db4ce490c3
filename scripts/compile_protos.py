"""Write rocketmq.pb below src/gantrymq/grpc/protocol: the descriptors of RocketMQ's .proto files and their imports.

    .venv/bin/python scripts/compile_protos.py

The result is committed: it has 18 KB and changes only with RocketMQ's protocol, and so neither a build nor an editable
install needs protoc. A test compares it with what this script makes.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

HOME = Path(__file__).resolve().parents[1] / "src" / "gantrymq" / "grpc" / "protocol"
DESCRIPTORS = HOME / "rocketmq.pb"
_PROTOS = HOME / "proto"
_SERVICE = "apache/rocketmq/v2/service.proto"


def descriptors() -> bytes:
    """The descriptor set. Exits if protoc fails."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "set.pb")
        of_google = str(files("grpc_tools") / "_proto")
        arguments = [f"-I{_PROTOS}", f"-I{of_google}", "--include_imports", f"--descriptor_set_out={made}", _SERVICE]
        if code := protoc.main(["protoc", *arguments]):
            sys.exit(code)
        return made.read_bytes()


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(descriptors())
