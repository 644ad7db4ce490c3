"""``gantrymq demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gantrymq.cli.messages import CANNOT, say


def demo(
    out: Annotated[
        Path, typer.Option(help="Where the store and the report go.", file_okay=False, readable=False)
    ] = Path("out"),
    rows: Annotated[int | None, typer.Option(min=1, help="Take so many flights only.", show_default="all")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Decides when the writer is killed.", show_default="a new one each time")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the working files in work/ of that directory.")] = False,
    open_report: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Store the flights of 2013, kill the writer, recover, ask Spark, report.

    Every row is checked: each one is in the store exactly once, or the
    difference is printed and the exit code is 1.

    Examples of use:

        gantrymq demo
        gantrymq demo --rows 20000 --seed 7 --keep --open
    """
    from importlib import import_module

    try:
        main = import_module("gantrymq.demo.main")
    except ModuleNotFoundError as error:
        say(f"the demo needs the module {error.name}: pip install 'gantrymq[demo]'")
        raise typer.Exit(CANNOT) from None
    raise typer.Exit(main.demo(out=out, rows=rows, seed=seed, keep=keep, open_report=open_report))
