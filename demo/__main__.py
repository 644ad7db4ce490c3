"""Store the flights of 2013, kill the writer, recover, ask Spark, report.

Every row is checked: each one is in the store exactly once, or the difference is printed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gantrymq.errors import GantrymqError

CANNOT = 3
INTERRUPTED = 130
_EXAMPLES = """
examples of use:
  make run
  make run DEMO_ARGS="--rows 20000 --seed 7 --keep --open"
  .venv/bin/python -m demo --rows 20000
"""


def main() -> int:
    """Run the demo with the arguments of the command line; returns the exit code."""
    options = vars(_parser().parse_args())
    try:
        from demo.main import demo

        return demo(**options)
    except ModuleNotFoundError as error:
        return _cannot(f"the demo needs the module {error.name}: `make setup` installs it into .venv")
    except (GantrymqError, OSError) as error:
        return _cannot(str(error))
    except KeyboardInterrupt:
        return _cannot("interrupted", INTERRUPTED)


def _cannot(reason: str, code: int = CANNOT) -> int:
    print(f"demo: {reason}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m demo",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("out"), help="the directory of the store and the report (default: out)")
    add("--rows", type=_count, help="take only the first ROWS flights (default: all)")
    add("--seed", type=int, help="decides when the writer is killed (default: a new one each time)")
    add("--keep", action="store_true", help="leave the working files in work/ of that directory")
    add("--open", action="store_true", dest="open_report", help="open the report in a browser")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


if __name__ == "__main__":
    sys.exit(main())
