"""Landings on Spark whose workers, driver or JVM are killed have each message once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gantrymq.tables.local.target import TableFormat
from golden_stores import unpack
from store_cases import tree
from tables.landing_cases import FORMATS, Lake, land

DRIVER = Path(__file__).with_name("landing_driver.py")


def data_files(root: Path) -> int:
    return sum(name.endswith((".parquet", ".staged")) for name in tree(root))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_files_of_killed_workers_are_removed_and_their_rows_land_once(kind: TableFormat, tmp_path: Path) -> None:
    store = unpack("direct-mixed", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path / "lake", kind)
    land(whole, store)
    warehouse = lake.target.warehouse or ""
    arguments = [str(store), lake.table, kind.value, warehouse, "1500"]
    done = subprocess.run(
        [sys.executable, str(DRIVER), *arguments], capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [int(line) for line in done.stdout.split()]
    assert len(rows) > 1
    assert lake.messages() == whole.messages()
    assert sum(rows) == len(lake.messages())
    committed = lake.target.open()
    assert committed.head() is not None
    assert data_files(lake.root) == committed.count_files()


def command(lake: Lake, store: Path, rows: int) -> list[str]:
    land_it = [sys.executable, "-m", "gantrymq", "table", "land", str(store), *lake.arguments]
    return [*land_it, "--topics", ".*", "--engine", "spark", "--commit-rows", str(rows)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_command_on_spark_killed_by_sigkill_lands_each_message_once(
    kind: TableFormat, tmp_path: Path, rng: random.Random
) -> None:
    store = unpack("direct-mixed", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path / "lake", kind)
    land(whole, store)
    for kill in range(4):
        process = subprocess.Popen(command(lake, store, 60), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        for _ in range(1 + kill):
            process.stdout.readline()  # a commit
        time.sleep(rng.uniform(0, 0.5))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert 0 < len(lake.messages()) < len(whole.messages())
    land(lake, store)
    assert lake.messages() == whole.messages()


@pytest.mark.slow
def test_end_of_jvm_is_one_line_and_next_landing_continues(tmp_path: Path) -> None:
    store = unpack("direct-mixed", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", TableFormat.DELTA), Lake(tmp_path / "lake", TableFormat.DELTA)
    land(whole, store)
    process = subprocess.Popen(
        command(lake, store, 60), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(jvm_of(process.pid), signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 3
    # Py4J and PySpark tell of their broken connections in front of it.
    assert said.splitlines()[-1].startswith("gantrymq: Spark's process has ended")
    land(lake, store)
    assert lake.messages() == whole.messages()


def jvm_of(pid: int) -> int:
    """The process of Java below a process."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                status = Path(f"/proc/{name}/status").read_text("utf-8")
            except OSError:
                continue
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            if fields["Name"] == "java" and int(fields["PPid"]) == pid:
                return int(name)
    raise AssertionError("no Java below the command")
