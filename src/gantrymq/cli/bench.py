"""``gantrymq bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gantrymq.cli.messages import CANNOT, FINDINGS, say, warn


def bench(
    races: Annotated[list[str] | None, typer.Argument(help="Words: only races whose name holds one of them.")] = None,
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
        gantrymq bench --scale 0.05 --against benchmarks/accepted.json
    """
    from importlib import import_module

    try:
        sizes = tuple(int(size) for size in growth.split(",") if size)
    except ValueError:
        raise typer.BadParameter(f"{growth!r} is no list of numbers like 1,2,10", param_hint="--growth") from None
    track = import_module("gantrymq.bench.main")
    java = None if ours_only else track.find_java(java_jar)
    if java is None and not ours_only:
        warn("no RocketMQ to race against: run `make interop` in a checkout, or give --java-jar")
    programme = track.programme(java, scale, tuple(races or ()))
    if names:
        print("\n".join(race.name for race in programme))
        return
    run = track.Run(rounds, sizes, scratch, out, as_json)
    outcomes = track.race(programme, run)
    if accept is not None:
        track.accept(outcomes, accept)
    collapsed = track.compare(programme, outcomes, against, run) if against is not None else []
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say(f"{outcome.name}: {outcome.error}")
    for change in collapsed:
        say(f"{change.name}: the ratio was {change.accepted:.2f} and is {change.now or 0:.2f}")
    if failed or collapsed:
        raise typer.Exit(CANNOT if len(failed) == len(programme) else FINDINGS)
