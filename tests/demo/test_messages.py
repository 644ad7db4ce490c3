"""Flights as messages: nothing of a row is lost on the way into a body."""

import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from demo.failure import InputMissingError
from demo.flights import read_flights
from demo.messages import row_of, uniq_key


def test_message_body_is_its_csv_row(flights: pa.Table, messages: pa.Table) -> None:
    rows = flights.to_pylist()
    assert [json.loads(body.as_py()) for body in messages["body"]] == rows
    assert b" " not in messages["body"][0].as_py()


def test_message_has_topic_queue_key_and_tag_of_flight(flights: pa.Table, messages: pa.Table) -> None:
    for number, (flight, message) in enumerate(zip(flights.to_pylist(), messages.to_pylist(), strict=True)):
        assert message["topic"] == "flights-" + flight["origin"]
        assert message["queue_id"] == number % 4
        assert (message["tags"], message["keys"]) == (flight["carrier"], str(flight["flight"]))
        assert message["properties"] == [("UNIQ_KEY", uniq_key(number))]


def test_born_time_is_scheduled_departure(flights: pa.Table, messages: pa.Table) -> None:
    zone = ZoneInfo("America/New_York")
    for flight, born in zip(flights.to_pylist(), messages["born_timestamp_ms"].to_pylist(), strict=True):
        at = datetime.fromtimestamp(born / 1000, zone)
        expected = tuple(flight[name] for name in ("month", "day", "hour", "minute"))
        assert (at.month, at.day, at.hour, at.minute) == expected


@pytest.mark.parametrize("row", [0, 7, 336_775, 99_999_999])
def test_key_names_its_row(row: int) -> None:
    assert row_of(uniq_key(row)) == row


@pytest.mark.parametrize("key", ["", "flight-2013-", "flight-2013-1", "flight-2014-00000001", "flight-2013-0000000٣"])
def test_foreign_key_names_no_row(key: str) -> None:
    assert row_of(key) == -1


def test_missing_input_names_fetching_command(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match=r"make run.*fetch_flights\.py"):
        read_flights(tmp_path / "none.zip")


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flights.csv.zip").write_bytes(b"no zip")
    with pytest.raises(InputMissingError, match="is not the file of flights"):
        read_flights(tmp_path / "flights.csv.zip")
