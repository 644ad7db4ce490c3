"""Write the bytecode of everything that the command imports, if pip was told not to compile.

Python does so itself on first import, but not if PYTHONDONTWRITEBYTECODE is set or the user cannot write to the
checkout. Then each start would compile numpy again, which takes longer than the rest of the start.
"""

import importlib
import pkgutil
import py_compile
import sys

import gantrymq.cli

ROOTS = (
    *("gantrymq.kernels.compiler", "gantrymq.store.message_store", "gantrymq.spark"),
    *("numba", "pyarrow", "pandas", "pyspark.sql", "pytest", "hypothesis", "rich.progress", "rich.table"),
)


def main() -> None:
    """Import the roots, then compile all modules that were imported."""
    commands = [f"gantrymq.cli.{module.name}" for module in pkgutil.iter_modules(gantrymq.cli.__path__)]
    for root in (*ROOTS, *commands):
        importlib.import_module(root)
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py") and module.__spec__ is not None and module.__spec__.cached:
            py_compile.compile(path, cfile=module.__spec__.cached, quiet=1)


if __name__ == "__main__":
    main()
