"""``gantrymq bench``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gantrymq.cli.messages import CANNOT, FINDINGS, say, warn
from gantrymq.errors import GantrymqError


def bench(
    races: Annotated[
        list[str] | None, typer.Argument(help="Words: only races whose name holds one of them, in any case.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each side runs; the median counts.")] = 3,
    scale: Annotated[float, typer.Option(min=0.0001, help="How much work: 1 is the full amount.")] = 1.0,
    java_jar: Annotated[
        Path | None, typer.Option(help="What `make interop` built; that of the checkout is found by itself.")
    ] = None,
    ours_only: Annotated[bool, typer.Option("--ours-only", help="Leave RocketMQ out.")] = False,
    growth: Annotated[str, typer.Option(help="Sizes in GiB for the costs that must not grow; empty: none.")] = "",
    out: Annotated[Path, typer.Option(help="Where results go.", file_okay=False)] = Path("out/bench"),
    scratch: Annotated[
        Path | None, typer.Option(help="Where stores are made.", show_default="a new one in /tmp")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Accepted ratios to compare with: exit 1 where half of one is gone.")
    ] = None,
    accept: Annotated[Path | None, typer.Option(help="Keep the ratios of this run as accepted.")] = None,
    names: Annotated[bool, typer.Option("--list", help="Print the races' names and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Race against the real RocketMQ: the same work by both, in turn, in one run.

    Needs Java and what `make interop` builds; without them only our side runs
    and there are no ratios. Results are kept as JSON and Markdown after each
    race, so that a run may be ended early, and as SVG at the end.

    Examples of use:

        gantrymq bench
        gantrymq bench "put 1024" SYNC --rounds 5
        gantrymq bench recovery --scale 0.1 --growth 1,2,10
        gantrymq bench growth --growth 1,10,100
        gantrymq bench --scale 0.05 --against benchmarks/accepted.json
    """
    from importlib import import_module
    from math import isfinite
    from signal import SIGTERM, signal

    signal(SIGTERM, _end)
    if not isfinite(scale):
        raise typer.BadParameter(f"{scale} is no amount of work", param_hint="--scale")
    main = import_module("gantrymq.bench.main")
    one_sided = _one_sided(main.missing_java, java_jar, ours_only=ours_only)
    track = main.track(None if one_sided else main.find_java(java_jar), scale, one_sided)
    programme, sizes = main.programme(track, tuple(races or ())), _sizes(growth)
    if not programme and not sizes:
        raise _no_race(races or [], one_sided)
    if names:
        print("\n".join(row.name for race in programme for row in race.rows))
        return
    ratios = _ratios(main.ratios, against)
    main.try_places(out, accept)
    run = main.Run(track, rounds, sizes, scratch, out, as_json)
    outcomes = main.race(programme, run)
    if accept is not None:
        main.accept(outcomes, accept)
    raced = {outcome.name for outcome in outcomes}
    for name in [name for name in ratios if name not in raced]:
        warn(f"{name}: its ratio was accepted, and it was not raced")
    collapsed = main.compare(programme, outcomes, ratios, run) if ratios else []
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say(f"{outcome.name}: {outcome.error}")
    for change in collapsed:
        say(f"{change.name}: the ratio was {change.accepted:.2f} and is {change.now or 0:.2f}")
    if failed or collapsed:
        raise typer.Exit(CANNOT if len(failed) == len(outcomes) else FINDINGS)


def _end(number: int, frame: object) -> NoReturn:
    """What SIGTERM does: it unwinds the run as Ctrl-C does, so that no server and no store is left behind."""
    raise SystemExit(128 + number)


def _no_race(words: list[str], one_sided: str) -> typer.BadParameter:
    among = " among those that run without RocketMQ" if one_sided else ""
    return typer.BadParameter(f"no race's name holds {' or '.join(map(repr, words))}{among}; --list names them all")


def _one_sided(missing: Callable[[Path | None], str], jar: Path | None, *, ours_only: bool) -> str:
    """Why RocketMQ does not race, as one line that is printed here and below the table; empty where it does."""
    if ours_only:
        return "RocketMQ was left out (--ours-only): there are no ratios"
    reason = missing(jar)
    if not reason:
        return ""
    if jar is not None:
        raise typer.BadParameter(reason, param_hint="--java-jar")
    line = (
        f"no RocketMQ to race against: {reason}. Only gantrymq runs; the races of recovery, the broker and Spark "
        "need RocketMQ and are left out, and there are no ratios"
    )
    warn(line)
    return line


def _ratios(load: Callable[[Path], dict[str, float]], path: Path | None) -> dict[str, float]:
    """Those accepted; none where none are asked for."""
    try:
        return {} if path is None else load(path)
    except GantrymqError as error:
        raise typer.BadParameter(str(error), param_hint="--against") from None


def _sizes(text: str) -> list[int]:
    """Sizes in GiB, from the least on: the store only grows."""
    try:
        sizes = sorted({int(size) for size in text.split(",") if size})
    except ValueError:
        sizes = [0]
    if sizes and sizes[0] < 1:
        raise typer.BadParameter(f"{text!r} is no list of numbers like 1,2,10", param_hint="--growth")
    return sizes
