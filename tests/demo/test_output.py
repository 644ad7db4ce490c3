"""The directory for what is made: an earlier run's is replaced, nobody else's is touched."""

from pathlib import Path

import pytest

from gantrymq.demo.failure import DemoError
from gantrymq.demo.main import demo
from gantrymq.demo.output import prepare_output


def test_a_run_replaces_what_an_earlier_one_left(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_output(out, out / "work")
    (out / "store").mkdir()
    (out / "report.html").write_text("old")
    (out / "mine.txt").write_text("mine")
    prepare_output(out, out / "work")
    assert sorted(path.name for path in out.iterdir()) == ["demo.txt", "mine.txt", "work"]


def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(DemoError, match="was not made by the demo"):
        prepare_output(tmp_path, tmp_path / "work")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_cannot_be_done_is_one_line_and_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(tmp_path / "out", flights=tmp_path / "none.zip") == 3
    error = capsys.readouterr().err
    assert error.startswith("gantrymq demo: the flights are not at ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
