"""The golden stores: directories that real RocketMQ brokers wrote, with what Java reads out of them.

Each unpacks to one folder with ``store/``, ``about.json`` (how it came to be, and its configuration),
``expected.jsonl``, ``commitlog.jsonl`` and ``queries.json``.
"""

import tarfile
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))


def unpack(name: str, into: Path) -> Path:
    """A copy of the golden store ``name`` under ``into``; returns its folder."""
    # Debian 12's Python 3.11.2 does not know extraction filters yet, and 3.12 warns without one.
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(into, **safely)  # type: ignore[arg-type]
    return into / name
