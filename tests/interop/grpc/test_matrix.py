"""The official gRPC SDKs against the real proxy and against ours: each case finds what is recorded.

``proxy_facts.json`` has what each case found at rocketmq-proxy 5.5.0 in local mode. The real proxy is compared with it
as ours is, so it cannot go stale. ``GANTRYMQ_RECORD_GRPC=1`` records the cases that run against the real proxy.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from .cases import CASES, LACKING
from .conftest import KINDS, SDKS, Matrix, require
from .scene import Facts

RECORDED = Path(__file__).with_name("proxy_facts.json")
RECORD = "GANTRYMQ_RECORD_GRPC"
EVERY_SDK = "*"

# What differs from the real proxy in local mode. A group that is not there is created and served, as in cluster mode.
# Ours refuses a commit after a check's rollback (docs/COMPATIBILITY.md); Go's SDK does not tell.
SERVED = {EVERY_SDK: {"start": "done", "receive": "done"}}
DIFFERENT: dict[tuple[str, str], dict[str, Facts]] = {
    ("ours", "decided-twice"): {EVERY_SDK: {"end": 50001, "keys": []}, "go": {"end": "done", "keys": []}},
    ("ours", "unknown-group"): SERVED,
    ("our-proxy", "unknown-group"): SERVED,
    ("cluster", "unknown-group"): SERVED,
}
# Facts that vary at a server. In LOCAL mode the real proxy's renewed handle keeps the first offset of the receive. The
# broker's new checkpoint begins with the message itself, so a message further behind cannot be acknowledged.
UNSTABLE = {("proxy", "slow-listener"): ("left",)}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


CELLS = [
    (kind, sdk, case) for kind in KINDS for sdk in SDKS for case in CASES if not LACKING & {(case, sdk), (case, kind)}
]


@pytest.mark.parametrize(("kind", "sdk", "case"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_results_of_sdks_equal_recorded_ones(matrix: Matrix, kind: str, sdk: str, case: str) -> None:
    require(sdk)
    facts = plain(matrix.facts(kind, sdk, case))
    unstable = UNSTABLE.get((kind, case), ())
    if kind == "proxy" and os.environ.get(RECORD) == "1" and not unstable:
        record(case, sdk, facts)
    expected = wanted(kind, case, sdk)
    assert {name: fact for name, fact in facts.items() if name not in unstable} == {
        name: fact for name, fact in expected.items() if name not in unstable
    }


def wanted(kind: str, case: str, sdk: str) -> Facts:
    """What a server shows an SDK; ``*`` stands for the SDKs that have no entry of their own."""
    entry = DIFFERENT.get((kind, case)) or _table()[case]
    facts: Facts = entry.get(sdk, entry.get(EVERY_SDK))
    return facts


def record(case: str, sdk: str, facts: Facts) -> None:
    table = _table()
    entry = table.setdefault(case, {EVERY_SDK: facts})
    entry.pop(sdk, None)
    if entry.get(EVERY_SDK) != facts:
        entry[sdk] = facts
    RECORDED.write_text(json.dumps(table, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def plain(facts: Facts) -> Facts:
    """As JSON has them."""
    made: Facts = json.loads(json.dumps(facts))
    return made


def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return table
