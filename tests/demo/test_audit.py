"""What the audit notices: any message lost, doubled, changed, moved or not found by its key."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from demo.audit import audit_store
from demo.failure import DifferenceError
from demo.messages import uniq_key
from demo.store_settings import open_store, write_conf
from gantrymq import StoredMessage, StoreReader

ROWS = 60


def conf_of(path: Path) -> Path:
    return path.with_suffix(".conf")


def stored(path: Path, messages: pa.Table) -> Path:
    write_conf(conf_of(path))
    with open_store(path, conf_of(path)) as store:
        assert not store.put_batch(messages).rejected
    return path


def replaced(messages: pa.Table, name: str, row: int, value: object) -> pa.Table:
    values = messages[name].to_pylist()
    values[row] = value
    return messages.set_column(messages.column_names.index(name), name, pa.array(values, messages[name].type))


def reordered(messages: pa.Table) -> pa.Table:
    """Rows 4 and 8 have changed places: the same queue of the same topic."""
    order = list(range(ROWS))
    queue = [row for row in order if messages["topic"][row] == messages["topic"][0] and row % 4 == 0]
    order[queue[0]], order[queue[1]] = queue[1], queue[0]
    return messages.take(pa.array(order))


def found(path: Path, given: pa.Table, acknowledged: int = ROWS) -> list[str]:
    with pytest.raises(DifferenceError) as caught:
        audit_store(path, conf_of(path), given, acknowledged, 1, lambda done: None)
    return caught.value.differences


def test_audit_of_correct_store_finds_nothing(tmp_path: Path, messages: pa.Table) -> None:
    given = messages.slice(0, ROWS)
    path = stored(tmp_path / "store", given.slice(0, 50))
    audit = audit_store(path, conf_of(path), given, 45, 1, lambda done: None)
    assert (audit.stored, audit.acknowledged, audit.unacknowledged, audit.keys_asked) == (50, 45, 5, 50)


def test_audit_of_empty_store_has_no_rows(tmp_path: Path, messages: pa.Table) -> None:
    path = stored(tmp_path / "store", messages.slice(0, 0))
    assert audit_store(path, conf_of(path), messages, 0, 1, lambda done: None).stored == 0
    assert found(path, messages, 2) == ["row 0 is lost (acknowledged)", "row 1 is lost (acknowledged)"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda all_: pa.concat_tables([all_.slice(0, 7), all_.slice(8)]), "row 7 is lost (acknowledged)"),
        (lambda all_: all_.slice(0, ROWS - 1), f"row {ROWS - 1} is lost (acknowledged)"),
        (lambda all_: pa.concat_tables([all_, all_.slice(7, 1)]), "row 7 is there 2 times"),
        (lambda all_: replaced(all_, "body", 7, b"{}"), "row 7 has another body: b'{}' instead of "),
        (lambda all_: replaced(all_, "tags", 7, "ZZ"), "row 7 has another tags: ZZ instead of "),
        (lambda all_: replaced(all_, "queue_id", 7, 0), "row 7 is in queue 0 instead of 3"),
        (lambda all_: replaced(all_, "properties", 7, []), "a message that was not in the input: flights-"),
        (reordered, " in its queue"),
    ],
)  # fmt: skip
def test_audit_finds_difference(
    tmp_path: Path, messages: pa.Table, change: Callable[[pa.Table], pa.Table], what: str
) -> None:
    given = messages.slice(0, ROWS)
    differences = found(stored(tmp_path / "store", change(given)), given)
    assert any(what in line for line in differences), differences


def test_audit_finds_row_missing_from_key_index(
    tmp_path: Path, messages: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(reader: StoreReader, topic: str, key: str) -> list[StoredMessage]:
        return [] if key == uniq_key(7) else query(reader, topic, key)

    query = StoreReader.query
    monkeypatch.setattr(StoreReader, "query", forgetful)
    given = messages.slice(0, ROWS)
    topic = given["topic"][7].as_py()
    differences = found(stored(tmp_path / "store", given), given)
    assert differences == [f"the index finds 0 messages of row 7 under {topic} {uniq_key(7)}"]
