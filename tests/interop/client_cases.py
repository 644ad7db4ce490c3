"""The cases of ``client-cases``: played against any name server; what they found at the real broker is kept as JSON.

``python -m tests.interop.client_cases [CASE …]`` records them, or some, anew, against the real name server and broker.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from .java import Line, Setting, run_java
from .java_cluster import JavaCluster

RECORDED = Path(__file__).with_name("java_client_facts.json")
# Delays of a second or two, so that a retry and a delayed message come while a test waits; no refusal by a broker that
# is merely starting on a busy machine; and timers, without which the real broker cannot delete a topic.
SETTINGS: dict[str, Setting] = {
    "messageDelayLevel": "1s 6s " + " ".join(["1s"] * 16),
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 60_000,
    "timerWheelEnable": True,
}
PLAY_SECONDS = 600
TRIES_AGAIN = 2


def names() -> list[str]:
    return [line["case"] for line in run_java("client-cases", None, namesrv="-", list=True)]


def play(namesrv: str, only: list[str] | None = None, *, binary: bool = False) -> dict[str, Line]:
    """The cases against the broker behind a name server: each case's line, by its name.

    On a busy machine one or the other waits in vain for what comes late: those that could not be played are played
    again. What a case found counts at once.
    """
    lines = _play_once(namesrv, only, binary=binary)
    for _ in range(TRIES_AGAIN):
        late = [name for name, line in lines.items() if not line["ok"]]
        lines |= _play_once(namesrv, late, binary=binary) if late else {}
    return lines


def _play_once(namesrv: str, only: list[str] | None, *, binary: bool) -> dict[str, Line]:
    chosen = ",".join(only) if only else None
    lines = run_java("client-cases", None, namesrv=namesrv, only=chosen, binary=binary, timeout=PLAY_SECONDS)
    return {line["case"]: line for line in lines}


def recorded() -> dict[str, Any]:
    """The facts of each case against the real name server and broker."""
    facts: dict[str, Any] = json.loads(RECORDED.read_text())
    return facts


def record(only: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, JavaCluster(Path(folder) / "store", SETTINGS) as cluster:
        lines = play(cluster.namesrv, only or None)
    failed = {name: line["error"] for name, line in lines.items() if not line["ok"]}
    if failed:
        raise SystemExit(f"nothing recorded: {failed}")
    kept = recorded() if only else {}
    facts = kept | {name: line["facts"] for name, line in lines.items()}
    RECORDED.write_text(json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    record(sys.argv[1:])
