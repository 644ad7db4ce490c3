"""gantrymq: Apache RocketMQ's message store in Python, byte-compatible, with its data pipeline on Spark.

The public names stand in ``__init__.pyi``. Each is imported on first use, so that ``import gantrymq`` stays cheap.
"""

import re
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = __loader__.get_data(str(Path(__file__).with_suffix(".pyi"))).decode()  # also out of a zip archive
_HOME = {name: module for module, name in re.findall(r"^from (\S+) import \(?\s*(\w+)", _STUB, re.MULTILINE)}
_EXTRA_OF = {
    name: extra
    for name, module in _HOME.items()
    for extra, prefix in (("arrow", "gantrymq.tools.export"), ("spark", "gantrymq.spark."))
    if module.startswith(prefix)
}
# Without names of extras, so that `from gantrymq import *` works without them.
__all__ = ["__version__", *sorted(_HOME.keys() - _EXTRA_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Import a public name on first use. Raises ImportError with the name of the extra that it needs."""
    if name not in _HOME:
        raise AttributeError(f"module 'gantrymq' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get(name)
        if extra is None or (error.name or "").startswith("gantrymq"):
            raise
        raise ImportError(f"gantrymq.{name} needs {error.name}: pip install 'gantrymq[{extra}]'") from error


def __dir__() -> list[str]:
    """The names of this module, for completion: public names of an extra only where the extra is installed."""
    from importlib.util import find_spec

    installed = {extra for extra, package in (("arrow", "pyarrow"), ("spark", "pyspark")) if find_spec(package)}
    of_extras = {name for name, extra in _EXTRA_OF.items() if extra in installed}
    return sorted({*globals(), *__all__, *of_extras})
