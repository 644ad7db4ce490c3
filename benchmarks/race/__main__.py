"""Race gantrymq against the real RocketMQ: the same work by both, in turn, in one run.

Needs Java and what `make interop` builds; without them only our side runs and there are no ratios. Results are kept as
JSON and Markdown after each race, so that a run may be ended early, and as SVG at the end.

Exit codes: 0 done, 1 a race failed or half of an accepted ratio is gone, 2 usage, 3 cannot.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from benchmarks.race import accepted
from benchmarks.race.process import JavaSide
from benchmarks.race.programme import chosen
from benchmarks.race.race import Outcome, Race
from benchmarks.race.run import Run, compare, run_races, try_places
from benchmarks.race.track import Track
from gantrymq.errors import GantrymqError

DONE, FAILED, CANNOT, INTERRUPTED = 0, 1, 3, 130
_EXAMPLES = """
examples of use:
  python -m benchmarks.race
  python -m benchmarks.race "put 1024" SYNC --rounds 5
  python -m benchmarks.race recovery --scale 0.1 --growth 1,2,10
  python -m benchmarks.race growth --growth 1,10,100
  python -m benchmarks.race --scale 0.05 --against benchmarks/accepted.json
"""


def main() -> int:
    """Run what the command line asks for. Returns the exit code."""
    signal.signal(signal.SIGTERM, _end)
    parser = _parser()
    options = parser.parse_intermixed_args()
    try:
        return _race(parser, options)
    except GantrymqError as error:
        say(str(error))
        return CANNOT
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return CANNOT
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


def say(text: str) -> None:
    """Print one line on stderr."""
    print(f"race: {text}", file=sys.stderr, flush=True)


def _race(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    alone = one_sided(options.java_jar, ours_only=options.ours_only)
    track = Track(None if alone else JavaSide.find(options.java_jar), options.scale, alone)
    races = chosen(track, tuple(options.races))
    if not races and not options.growth:
        among = " among those that run without RocketMQ" if alone else ""
        words = " or ".join(map(repr, options.races))
        parser.error(f"no race's name holds {words}{among}; --list names them all")
    if options.names:
        print("\n".join(row.name for race in races for row in race.rows))
        return DONE
    try:
        ratios = accepted.load(options.against) if options.against else {}
    except accepted.AcceptedError as error:
        parser.error(f"argument --against: {error}")
    try_places(options.out, options.accept)
    run = Run(track, options.rounds, options.growth, options.scratch, options.out, options.as_json)
    outcomes = run_races(races, run)
    if options.accept:
        accepted.save(options.accept, outcomes)
    return _judged(races, outcomes, ratios, run)


def _judged(races: Sequence[Race], outcomes: Sequence[Outcome], ratios: dict[str, float], run: Run) -> int:
    """The exit code. Prints which races failed, and whose ratio collapsed."""
    raced = {outcome.name for outcome in outcomes}
    for name in [name for name in ratios if name not in raced]:
        say(f"warning: {name}: its ratio was accepted, and it was not raced")
    collapsed = compare(races, outcomes, ratios, run) if ratios else []
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say(f"{outcome.name}: {outcome.error}")
    for change in collapsed:
        say(f"{change.name}: the ratio was {change.accepted:.2f} and is {change.now or 0:.2f}")
    if not failed and not collapsed:
        return DONE
    return CANNOT if len(failed) == len(outcomes) else FAILED


def one_sided(jar: Path | None, *, ours_only: bool) -> str:
    """The reason why RocketMQ does not race, in one line for stderr and for below the table; empty if it does."""
    if ours_only:
        return "RocketMQ was left out (--ours-only): there are no ratios"
    reason = JavaSide.missing(jar)
    if not reason:
        return ""
    line = (
        f"no RocketMQ to race against: {reason}. Only gantrymq runs; the races of recovery, the broker and Spark "
        "need RocketMQ and are left out, and there are no ratios"
    )
    say(f"warning: {line}")
    return line


def _end(number: int, frame: object) -> NoReturn:
    """Handle SIGTERM: unwind as after Ctrl-C, so that no server and no store is left behind.

    A child that was just begun is known to no caller yet, and would write into a directory that is removed.
    """
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = status.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                os.kill(int(status.parent.name), signal.SIGKILL)
    raise SystemExit(128 + number)


class _Parser(argparse.ArgumentParser):
    """A parser that prints an error in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"race: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(
        "python -m benchmarks.race",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("races", nargs="*", metavar="WORD", help="only races whose name holds one of these words, in any case")
    add("--rounds", type=_rounds, default=3, help="how often each side runs; the median counts (default: 3)")
    add("--scale", type=_scale, default=1.0, help="how much work: 1 is the full amount (default: 1)")
    add("--java-jar", type=_java_jar, help="what `make interop` built (default: that of this checkout)")
    add("--ours-only", action="store_true", help="leave RocketMQ out")
    add("--growth", type=_sizes, default=[], metavar="GIB,…", help="sizes for the costs that must not grow")
    add("--out", type=Path, default=Path("out/bench"), help="the directory of the results (default: out/bench)")
    add("--scratch", type=Path, help="where stores are made (default: a new directory for temporary files)")
    add("--against", type=Path, help="accepted ratios to compare with: exit 1 where half of one is gone")
    add("--accept", type=Path, help="keep the ratios of this run as accepted")
    add("--list", action="store_true", dest="names", help="print the races' names and end")
    add("--json", action="store_true", dest="as_json", help="print the result as JSON")
    return parser


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds, which is 1 at least")
    return int(text)


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no amount of work")
    return scale


def _java_jar(text: str) -> Path:
    if missing := JavaSide.missing(Path(text)):
        raise argparse.ArgumentTypeError(missing)
    return Path(text)


def _sizes(text: str) -> list[int]:
    """Sizes in GiB, ascending, because the store only grows."""
    try:
        sizes = sorted({int(size) for size in text.split(",") if size})
    except ValueError:
        sizes = [0]
    if sizes and sizes[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers like 1,2,10")
    return sizes


if __name__ == "__main__":
    sys.exit(main())
