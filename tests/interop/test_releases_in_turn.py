"""One store directory under RocketMQ 4.9, 5.1, 5.3, 5.5.0 and 5.5.1 in turn, with ours between: nothing is missing.

The classes are DefaultMessageStore of each release, because Maven has no broker of some of them. A message is there if
the queue gives it and the index answers its key.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gantrymq.model.message import Message
from gantrymq.store.reader import StoreReader
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, open_reader, open_store, queue_messages

from .java import INTEROP, JavaError

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

SOURCE = INTEROP / "releases" / "TakeOver.java"
RELEASES = ("4.9.8", "5.1.4", "5.3.2", "5.5.0", "5.5.1")
# Modules that 5.5.1 does not have, with those that must be as new as its store.
PINS = {
    "5.5.1": {
        **dict.fromkeys(("client", "srvutil", "filter", "auth"), "5.5.0"),
        **dict.fromkeys(("common", "remoting"), "5.5.1"),
    }
}
QUEUES = (("orders", 0), ("orders", 3), ("parts", 0))
PUT = 40  # messages that each side puts into each queue, in files that hold about 80 records
JVM = [
    *("java", "-XX:TieredStopAtLevel=1", "-Xmx512m"),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch", "jdk.internal.ref")),
]


def classpath(release: str, folder: Path) -> str:
    """The jars of the store of a release, from Maven."""

    def dependency(module: str, version: str) -> str:
        return (
            f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{module}</artifactId>"
            f"<version>{version}</version></dependency>"
        )

    pins = "".join(dependency(*pin) for pin in PINS.get(release, {}).items())
    pom = folder / f"{release}.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>g</artifactId><version>1</version>"
        f"<dependencyManagement><dependencies>{pins}</dependencies></dependencyManagement>"
        f"<dependencies>{dependency('store', release)}</dependencies></project>"
    )
    output = folder / f"{release}.classpath"
    words = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), "dependency:build-classpath"]
    run([*words, f"-Dmdep.outputFile={output}"], folder)
    return output.read_text()


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    if done.returncode:
        raise JavaError(f"{' '.join(words[-8:])}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Java:
    """The store class of one release."""

    def __init__(self, release: str, folder: Path) -> None:
        self.release, self._folder = release, folder
        self._classpath = classpath(release, folder)

    def take_over(self, store: Path, end: str) -> list[str]:
        """Open, recover and append; returns a line for each message that was there before."""
        queues = [f"{topic}/{queue}" for topic, queue in QUEUES]
        words = [*JVM, f"-Duser.home={self._folder}", "-cp", self._classpath, str(SOURCE), str(store), self.release]
        said = run([*words, str(PUT - 3), end, *queues], self._folder)
        return [line for line in said.splitlines() if re.match(r"\S+ \d+ \d+ ", line)]


def lines_of(reader: StoreReader) -> list[str]:
    """As TakeOver.java prints them."""
    return [
        f"{topic} {queue} {message.queue_offset} {message.body.decode()} {message.keys[0]} "
        + str(message.phy_offset in reader.query_offsets(topic, message.keys[0], max_num=64)).lower()
        for topic, queue in QUEUES
        for message in queue_messages(reader, topic, queue)
    ]


def put_ours(store: Path, name: str) -> None:
    """Append as many messages as a release of RocketMQ does."""
    with open_store(path=store) as ours:
        for topic, queue in QUEUES:
            for number in range(PUT):
                text = f"{name}-{number}"
                message = Message(topic, text.encode(), queue_id=queue, tags="odd", keys=[f"{text}-{topic}/{queue}"])
                assert ours.put(message).is_stored
        await_dispatch(ours)


def expected(names: list[str]) -> list[str]:
    """The lines after each of ``names`` has put its messages."""
    bodies = [f"{name}-{number}" for name in names for number in range(PUT)]
    return [
        f"{topic} {queue} {offset} {body} {body}-{topic}/{queue} true"
        for topic, queue in QUEUES
        for offset, body in enumerate(bodies)
    ]


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Java]:
    folder = tmp_path_factory.mktemp("releases")
    return [Java(release, folder) for release in RELEASES]


@pytest.mark.parametrize("end", ["close", "halt"])
@pytest.mark.parametrize("way", ["older-to-newer", "newer-to-older"])
def test_store_of_five_releases_in_turn_with_ours_between_keeps_every_message(
    releases: list[Java], tmp_path: Path, end: str, way: str
) -> None:
    store, names = tmp_path / "store", list[str]()
    for java in releases if way == "older-to-newer" else reversed(releases):
        assert java.take_over(store, end) == expected(names), java.release
        names.append(java.release)
        if end == "close":
            assert list(verify_store(store, SMALL, given=GEOMETRY_KEYS)) == [], java.release
        put_ours(store, f"after-{java.release}")
        names.append(f"after-{java.release}")
        with open_reader(store) as reader:
            assert lines_of(reader) == expected(names)
        assert list(verify_store(store, SMALL, given=GEOMETRY_KEYS)) == [], java.release
