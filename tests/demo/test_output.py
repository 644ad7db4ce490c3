"""The directory for what is made: what an earlier run left is replaced, what others left is not touched."""

import re
from pathlib import Path

import pytest

from demo.__main__ import main
from demo.failure import DemoError
from demo.main import demo
from demo.output import prepare_output


def test_run_replaces_output_of_earlier_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_output(out, out / "work")
    (out / "store").mkdir()
    (out / "report.html").write_text("old")
    (out / "mine.txt").write_text("mine")
    prepare_output(out, out / "work")
    assert sorted(path.name for path in out.iterdir()) == ["demo.txt", "mine.txt", "work"]


def test_foreign_files_in_output_are_kept(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "result.json").write_text("{}")
    prepare_output(tmp_path, tmp_path / "work")
    assert (tmp_path / "bench" / "result.json").read_text() == "{}"
    prepare_output(tmp_path, tmp_path / "work")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench", "demo.txt", "work"]


@pytest.mark.parametrize("name", ["store", "work", "report.html", "summary.json", "broker.conf", "demo.txt"])
def test_foreign_files_are_not_replaced(tmp_path: Path, name: str) -> None:
    """Also where it is no more than a link to somewhere, or to nowhere."""
    for make in (Path.mkdir, lambda path: path.write_text("mine"), lambda path: path.symlink_to("nowhere")):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        out.mkdir()
        make(out / name)
        with pytest.raises(DemoError, match=rf"^{re.escape(name)} in .* was not made by the demo"):
            prepare_output(out, out / "work")
        assert [path.name for path in out.iterdir()] == [name]


def test_missing_input_prints_one_line_and_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(tmp_path / "out", flights=tmp_path / "none.zip") == 3
    error = capsys.readouterr().err
    assert error.startswith("demo: the flights are not at ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_impossible_row_count_is_usage_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, count: str
) -> None:
    monkeypatch.setattr("sys.argv", ["demo", "--rows", count])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "argument --rows: invalid" in capsys.readouterr().err
