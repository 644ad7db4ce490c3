"""Flights made here, so that these tests need neither a network nor the real file."""

import csv
import io
import random
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from demo.flights import COLUMNS, MEMBER, read_flights
from demo.messages import make_messages
from demo.store_settings import write_conf
from demo.writer import write_messages
from demo.writer_process import Workplace

ROWS = 3000


def made_up_flight(rng: random.Random, number: int) -> dict[str, object]:
    """A row as the real file has them; one in twenty is cancelled, some planes are unknown."""
    month, day, hour, minute = 1 + number * 12 // ROWS, rng.randint(1, 28), rng.randint(5, 22), rng.choice((0, 15, 59))
    cancelled = rng.random() < 0.05
    delay = rng.randint(-10, 200)
    row: dict[str, object] = {
        "year": 2013, "month": month, "day": day, "sched_dep_time": hour * 100 + minute, "sched_arr_time": 2359,
        "dep_time": "NA" if cancelled else hour * 100, "dep_delay": "NA" if cancelled else delay,
        "arr_time": "NA" if cancelled else 2000, "arr_delay": "NA" if cancelled else delay - 5,
        "carrier": rng.choice(("UA", "AA", 'Q"', "9E")), "flight": rng.randint(1, 400),
        "tailnum": rng.choice(("N1", "NÖ2\\", "NA")), "origin": rng.choice(("EWR", "JFK", "LGA")),
        "dest": rng.choice(("LAX", "ORD", "BOS")), "air_time": "NA" if cancelled else 100, "distance": 500,
        "hour": hour, "minute": minute, "time_hour": utc_hour(month, day, hour),
    }  # fmt: skip
    return {name: row[name] for name in COLUMNS}


def utc_hour(month: int, day: int, hour: int) -> str:
    local = datetime(2013, month, day, hour, tzinfo=ZoneInfo("America/New_York"))
    return f"{local.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture(scope="session")
def flights_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flights.csv.zip of ROWS made-up flights."""
    rng, text = random.Random(2013), io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(made_up_flight(rng, number) for number in range(ROWS))
    path = tmp_path_factory.mktemp("flights") / "flights.csv.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, text.getvalue())
    return path


@pytest.fixture(scope="session")
def flights(flights_file: Path) -> pa.Table:
    return read_flights(flights_file)


@pytest.fixture(scope="session")
def messages(flights: pa.Table) -> pa.Table:
    return make_messages(flights)


@pytest.fixture
def place(tmp_path: Path, messages: pa.Table) -> Workplace:
    """Everything a writer needs, and no store yet."""
    write_messages(messages, tmp_path / "messages.arrow")
    write_conf(tmp_path / "broker.conf")
    return Workplace(
        tmp_path / "store", tmp_path / "messages.arrow", tmp_path / "broker.conf", tmp_path / "writer.log", batch=20
    )
