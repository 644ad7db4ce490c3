"""``gantrymq sql`` on the command line: JSON, CSV, a table for people, exit codes."""

from __future__ import annotations

import base64
import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import Run, tree
from test_extras import WITHOUT

from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import await_dispatch, open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "store"
    with open_store(RealFileSystem(), path) as opened:
        bodies = [b"first", b"\xff\x00", "drei €".encode()]
        opened.put_batch([Message("orders", body, keys=["k1", "k2"], tags="A") for body in bodies])
        opened.put_batch([Message("many", b"%d" % number) for number in range(1200)])
        await_dispatch(opened)
    return path


def test_json_has_one_object_a_row(gantrymq: Run, store: Path) -> None:
    before = tree(store)
    text = "select queue_offset, keys, properties, body, sum(queue_id) over () as total from orders order by 1"
    done = gantrymq("sql", "--json", store, text)
    assert (done.code, done.err) == (0, "")
    properties = {"KEYS": "k1 k2", "TAGS": "A"}
    shared = {"keys": ["k1", "k2"], "properties": properties, "total": 0}
    assert done.lines == [
        {"queue_offset": 0, **shared, "body": "first"},
        {"queue_offset": 1, **shared, "body": None, "body_base64": base64.b64encode(b"\xff\x00").decode()},
        {"queue_offset": 2, **shared, "body": "drei €"},
    ]
    assert tree(store) == before


def test_sql_values_of_other_types_become_json(gantrymq: Run, store: Path) -> None:
    text = (
        "select 1.5::decimal(4,1) as d, 12345678901234567890123::hugeint as h, date '2026-11-29' as day, "
        "timestamptz '2026-11-29 08:00:00+01' as t, interval 90 seconds as i, true as b, 'nan'::double as n, "
        "{'a': [1, null]} as s, count(*), count(*) from orders"
    )
    done = gantrymq("sql", "--json", store, text)
    assert (done.code, done.err) == (0, "")
    (row,) = done.lines
    assert row == {
        **{"d": 1.5, "h": "12345678901234567890123", "day": "2026-11-29", "t": "2026-11-29T07:00:00+00:00"},
        **{"i": "P0M0DT90S", "b": True, "n": None, "s": {"a": [1, None]}, "count_star()": 3, "count_star()_9": 3},
    }


def test_csv_has_names_and_quoted_values(gantrymq: Run, store: Path) -> None:
    done = gantrymq("sql", "--csv", store, "select queue_offset as o, keys, body from orders order by o limit 2")
    assert done.code == 0
    rows = list(csv.reader(io.StringIO(done.text)))
    assert rows == [["o", "keys", "body"], ["0", '["k1","k2"]', "first"], ["1", '["k1","k2"]', "/wA="]]


def test_truncated_table_for_people_says_more_rows_exist(gantrymq: Run, store: Path) -> None:
    done = gantrymq("sql", "-n", 5, store, "select queue_offset, body from many order by 1")
    assert done.code == 0
    assert "the first 5 rows: -n N shows more, --json and --csv print all" in done.text
    assert len(done.text.splitlines()) < 12
    whole = gantrymq("sql", "-n", 3, store, "select body from orders where body = 'first'::blob")
    assert "first 3 rows" not in whole.text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["select * from oders"], 2, "gantrymq: there is no topic or table oders; the nearest names are orders\n"),
        (["selec"], 2, 'gantrymq: syntax error at or near "selec"\n'),
        ([], 2, "give a SOURCE and a QUERY"),
        (["--json", "--csv", "select 1"], 2, "--json and --csv exclude each other"),
    ],
)
def test_wrong_call_is_one_line(arguments: list[str], code: int, message: str, gantrymq: Run, store: Path) -> None:
    options = [word for word in arguments if word.startswith("--")]
    rest = [word for word in arguments if not word.startswith("--")]
    done = gantrymq("sql", *options, store, *rest)
    assert (done.code, done.out) == (code, b"")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_query_of_source_without_store_is_refused(gantrymq: Run, tmp_path: Path) -> None:
    done = gantrymq("sql", tmp_path, "select 1")
    assert done.code == 3
    assert done.err.count("\n") == 1
    unmatched = gantrymq("sql", tmp_path / "*" / "store", "select 1")
    assert (unmatched.code, unmatched.err.count("\n")) == (2, 1)


def test_skipped_messages_are_named_and_exit_code_is_1(gantrymq: Run, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as opened:
        opened.put_batch([Message("orders", b"%d" % number) for number in range(100)])
        await_dispatch(opened)
    with min((path / "consumequeue" / "orders" / "0").iterdir()).open("r+b") as file:
        file.seek(20 * 3)
        file.write(bytes(20))
    done = gantrymq("sql", "--json", path, "select count(*) as n, count(body) as bodies from orders")
    assert (done.code, done.lines) == (1, [{"n": 99, "bodies": 99}])
    first, last = done.err.splitlines()
    assert first.startswith("gantrymq: warning: skipped: topic orders, ")
    assert last == "gantrymq: warning: 1 message skipped: `gantrymq store verify` says what is damaged"


def test_missing_duckdb_prints_one_line_naming_extra(store: Path) -> None:
    command = [sys.executable, "-c", WITHOUT.format(module="duckdb"), "sql", str(store), "select 1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "gantrymq: this needs the module duckdb: pip install 'gantrymq[sql]'\n"


def test_query_in_new_process_imports_no_pandas(process: Run, store: Path) -> None:
    done = process("sql", "--json", store, "select count(*) as n from many")
    assert (done.code, done.err, done.lines) == (0, "", [{"n": 1200}])
