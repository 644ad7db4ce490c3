"""The rules of the source: which package imports which, sizes, names, docstrings.

``LIMITS`` bounds the sizes of files and functions. Within the bounds a file is one idea told whole.
"""

from __future__ import annotations

import ast
import graphlib
import math
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gantrymq.model import message

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
# Programs of a checkout, which stand beside the package and use it. No wheel holds them.
PROGRAMS = ("demo", "benchmarks/race")

LIMITS = {"file_lines": 600, "function_lines": 70, "function_lines_p99": 40}

# The layers that each layer may import, besides itself and errors. The root package is the facade that imports public
# names on first use. None: it may import anything, and no layer may import it.
BELOW_STORE = {"clock", "config", "format", "fs", "kernels", "model", "service"}
MAY_IMPORT: dict[str, set[str] | None] = {
    "errors": set(),
    "clock": set(),
    "logs": set(),
    "model": set(),
    "config": {"model"},
    "format": {"model"},
    "filter": {"model"},
    "kernels": {"format", "model"},  # their constants alone: see test_kernels_take_only_constants
    "fs": {"clock"},
    "service": {"clock"},
    "store": BELOW_STORE,
    "remoting": {"logs", "model"},
    "auth": {"clock", "config", "fs", "format", "logs", "remoting"},
    "ha": BELOW_STORE | {"store", "logs"},
    "namesrv": {"auth", "clock", "config", "format", "fs", "logs", "model", "remoting", "service"},
    "client": {"clock", "config", "format", "kernels", "logs", "model", "remoting", "service"},
    "metrics": {"logs", "config", "service"},
    "broker": BELOW_STORE | {"store", "ha", "auth", "remoting", "logs", "filter", "metrics"},
    "http2": set(),
    "grpc": {"auth", "client", "clock", "config", "format", "http2", "logs", "metrics", "model", "remoting"},
    "pytest_plugin": {"embedded"},
    "embedded": BELOW_STORE
    | {"store", "ha", "auth", "remoting", "namesrv", "broker", "client", "grpc", "logs", "metrics", "console"},
    "tools": BELOW_STORE | {"store"},
    "archive": BELOW_STORE | {"store", "tools"},
    "page": set(),
    "console": BELOW_STORE
    | {"store", "tools", "tables", "client", "remoting", "logs", "broker"},  # of broker the names alone
    "tables": BELOW_STORE | {"store", "tools", "client", "remoting", "metrics"},
    "spark": BELOW_STORE | {"store", "tools", "tables", "client", "remoting", "page"},
    "cli": None,
    "demo": None,
    "benchmarks": None,
    "__main__": None,
    "gantrymq": None,
    "pyspark_rocketmq": {"spark"},
}

# The parts of tools/. Its other modules are above all of them.
TOOLS_MAY_IMPORT = {
    "findings": set(),
    "reports": set(),
    "read": {"reports"},
    "audit": {"reports", "read"},
    "check": {"findings", "reports", "read", "audit"},
    "repair": {"reports", "read", "audit"},
    "pending": {"read"},
}

# No file, socket, thread or clock: these layers are the same on every machine and at any time.
PURE = {"model", "config", "format", "filter", "kernels", "remoting", "http2"}
IMPURE_MODULES = {
    *("asyncio", "concurrent", "fcntl", "glob", "io", "mmap", "multiprocessing", "os", "pathlib", "queue", "sched"),
    *("select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "sys", "tempfile"),
    *("_thread", "threading", "time"),
}
IMPURE_CALLS = {
    *("open", "input", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
    *("np.fromfile", "np.load", "np.memmap", "np.save", "np.savez"),
}
PURE_BUT = {
    "gantrymq.remoting.transport": "where bytes meet sockets",
    "gantrymq.kernels.loader": "opens the library of compiled kernels, under a lock",
    "gantrymq.kernels.variants": "asks what the processor is",
    "gantrymq.kernels.compiler": "a program of its own that writes object files",
    "gantrymq.kernels.build": "reads the sources of kernels to see what has changed, compiles and links",
    "gantrymq.kernels.__main__": "a command, which reports what it compiles",
}

# What runs on Spark's executors reads a store, and does nothing else.
EXECUTOR_MODULES = {"gantrymq.spark.read.batch"}
EXECUTORS_MAY_IMPORT = tuple(f"gantrymq.{part}" for part in ("spark", "store.reader", "tools", "kernels", "errors"))

# Where log lines go, and the command line, which configures it.
STRUCTLOG_IN = {"gantrymq.logs", "gantrymq.cli.serving"}

# Constants with the text of a property name that mean something else.
NAMES_OF_OTHER_THINGS = {"gantrymq.broker.tables.attributes": "types of messages"}

NAMES_THAT_SAY_NOTHING = {"util", "utils", "helper", "helpers", "misc"}


@dataclass(frozen=True)
class Import:
    """One imported module of ours, with the names taken from it (none for the module as a whole)."""

    target: str
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Module:
    """One source file, parsed when a test asks: each worker imports this module to collect its tests."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text("utf-8"), str(self.path))

    @property
    def layer(self) -> str:
        return layer_of(self.name)

    @property
    def shown(self) -> str:
        return str(self.path.relative_to(ROOT))


def layer_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "gantrymq" else parts[0]


@cache
def modules() -> dict[str, Module]:
    """Every module under src and of the programs beside it, by its dotted name."""
    found = {}
    for base, below in ((SRC, "."), *((ROOT, name) for name in PROGRAMS)):
        for path in sorted((base / below).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path)
    return found


def in_layers(layers: set[str]) -> list[Module]:
    return [module for module in modules().values() if module.layer in layers]


def raw_imports(module: Module) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """All imports wherever they stand: (module as an absolute name, names taken from it, line)."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, (), node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield name, tuple(alias.name for alias in node.names), node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            target = node.args[0]
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                yield target.value, (), node.lineno


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """The imports of our own modules; ``from package import module`` counts as an import of the module."""
    ours = []
    for name, taken, line in raw_imports(module):
        if name not in modules():
            continue
        submodules = [f"{name}.{one}" for one in taken if f"{name}.{one}" in modules()]
        names = tuple(one for one in taken if f"{name}.{one}" not in modules())
        ours += [Import(submodule, (), line) for submodule in submodules]
        if names or not submodules:
            ours.append(Import(name, names, line))
    return tuple(ours)


def tell(findings: list[str]) -> None:
    """Fail with one finding a line."""
    if findings:
        pytest.fail("\n".join(findings), pytrace=False)


# Imports


def test_imports_go_one_way() -> None:
    findings = []
    for module in modules().values():
        if module.layer not in MAY_IMPORT:
            findings.append(f"{module.shown}: layer {module.layer!r} is not in MAY_IMPORT: say what it may import")
            continue
        allowed = MAY_IMPORT[module.layer]
        for one in imports(module):
            layer = layer_of(one.target)
            if layer in {module.layer, "errors"} or (layer == "gantrymq" and one.names == ("__version__",)):
                continue
            facade = module.layer in {"gantrymq", "__main__"}
            if MAY_IMPORT.get(layer, set()) is None and not facade:
                findings.append(f"{module.shown}:{one.line}: no layer may import {layer}")
            elif allowed is not None and layer not in allowed:
                findings.append(f"{module.shown}:{one.line}: {module.layer} may not import {one.target}")
    tell(findings)


def test_parts_of_tools_import_one_way() -> None:
    findings = []
    for module in in_layers({"tools"}):
        part = module.name.split(".")[2] if module.name.count(".") > 1 else ""
        for one in imports(module) if part in TOOLS_MAY_IMPORT else ():
            target = one.target.split(".")
            if target[1] == "tools" and target[2] not in TOOLS_MAY_IMPORT[part] | {part}:
                findings.append(f"{module.shown}:{one.line}: {part} may not import {one.target}")
    tell(findings)


def test_no_import_cycles() -> None:
    """Imports inside functions and for type checking count too."""
    graph = {name: {one.target for one in imports(module)} - {name} for name, module in modules().items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))


def test_kernels_take_only_constants() -> None:
    tell(
        [
            f"{module.shown}:{one.line}: kernels take only constants from {one.target}, got {one.names or 'all of it'}"
            for module in in_layers({"kernels"})
            for one in imports(module)
            if layer_of(one.target) in {"format", "model"} and not (one.names and all(map(str.isupper, one.names)))
        ]
    )


def test_store_has_one_composition_root() -> None:
    root = "gantrymq.store.message_store"
    tell(
        [
            f"{module.shown}:{one.line}: a leaf of store never imports message_store"
            for module in in_layers({"store"})
            for one in imports(module)
            if one.target == root and module.name != root
        ]
    )
    package = modules().get("gantrymq.store")
    assert package is None or not imports(package), "store/__init__.py stays nearly empty: it imports nothing of ours"


def test_executors_import_only_reader() -> None:
    tell(
        [
            f"{module.shown}:{one.line}: runs on Spark's executors and may not import {one.target}"
            for module in modules().values()
            if module.name in EXECUTOR_MODULES
            for one in imports(module)
            if not any(one.target == name or one.target.startswith(name + ".") for name in EXECUTORS_MAY_IMPORT)
        ]
    )


def test_pure_layers_use_no_file_socket_thread_or_clock() -> None:
    findings = []
    for module in in_layers(PURE):
        if any(f"{module.name}.".startswith(f"{name}.") for name in PURE_BUT):
            continue
        used = [(name, line) for name, _, line in raw_imports(module) if name.split(".")[0] in IMPURE_MODULES]
        called = [
            (ast.unparse(node.func), node.lineno)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in IMPURE_CALLS
        ]
        findings += [
            f"{module.shown}:{line}: {module.layer} touches no file, socket, thread or clock, but uses {name}"
            for name, line in used + called
        ]
    tell(findings)


def test_structlog_is_imported_only_by_logs_and_serving() -> None:
    """Lines of other loggers go to stdout in a program that has not configured structlog."""
    tell(
        [
            f"{module.shown}:{line}: only {', '.join(sorted(STRUCTLOG_IN))} know structlog, others have gantrymq.logs"
            for module in modules().values()
            if module.name not in STRUCTLOG_IN
            for name, _, line in raw_imports(module)
            if name.split(".")[0] == "structlog"
        ]
    )


def bound(module: Module) -> set[str]:
    """The names that a module binds at its top."""
    names: set[str] = set()
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            names |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return names


def test_scripts_import_existing_names() -> None:
    """Benchmarks and examples, which no test runs: what they use of ours may be renamed."""
    findings = []
    for path in sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").glob("*.py")]):
        script = Module(path.stem, path)
        for name, taken, line in raw_imports(script):
            if name.split(".")[0] not in {"gantrymq", "demo"} and not name.startswith("benchmarks.race"):
                continue
            known = bound(modules()[name]) if name in modules() else set()
            missing = {one for one in taken if f"{name}.{one}" not in modules()} - known
            if name not in modules() or (missing and "__getattr__" not in known):
                findings.append(
                    f"{script.shown}:{line}: there is no {name} with {', '.join(sorted(missing)) or 'that name'}"
                )
    tell(findings)


# Names and docstrings


def test_module_name_says_what_it_does() -> None:
    tell(
        [
            f"{module.shown}: name it after what it does"
            for module in modules().values()
            if module.path.stem.strip("_") in NAMES_THAT_SAY_NOTHING
            or module.path.parent.name in NAMES_THAT_SAY_NOTHING
        ]
    )


def undocumented(node: ast.AST, prefix: str) -> Iterator[str]:
    """Public classes and functions without a docstring, members of public classes among them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.Try):
            yield from undocumented(child, prefix)
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name[0] == "_":
            continue
        is_overload = any(ast.unparse(one).split(".")[-1] in {"overload", "setter"} for one in child.decorator_list)
        if not ast.get_docstring(child) and not is_overload:
            yield f"{prefix}{child.name} (line {child.lineno})"
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, f"{prefix}{child.name}.")


def test_public_definition_has_docstring() -> None:
    findings = []
    for module in modules().values():
        if not ast.get_docstring(module.tree):
            findings.append(f"{module.shown}: the module says nothing about itself")
        findings += [f"{module.shown}: {name} has no docstring" for name in undocumented(module.tree, "")]
    tell(findings)


# Sizes


@cache
def functions() -> tuple[tuple[int, str], ...]:
    """(lines, where) of every function, shortest first; a docstring counts, decorators do not."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return tuple(
        sorted(
            ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module.shown}:{node.lineno} {node.name}")
            for module in modules().values()
            for node in ast.walk(module.tree)
            if isinstance(node, kinds)
        )
    )


@cache
def files() -> tuple[tuple[int, str], ...]:
    """(lines, where) of every file, shortest first."""
    return tuple(sorted((len(one.path.read_text("utf-8").splitlines()), one.shown) for one in modules().values()))


def measured() -> dict[str, tuple[int, str]]:
    """What each limit limits, and where the largest stands."""
    return {
        "file_lines": files()[-1],
        "function_lines": functions()[-1],
        "function_lines_p99": functions()[math.ceil(0.99 * len(functions())) - 1],
    }


@pytest.mark.parametrize("what", LIMITS)
def test_file_and_function_sizes_stay_within_limits(what: str) -> None:
    size, where = measured()[what]
    assert size <= LIMITS[what], f"{what}: {size} at {where}; the limit is {LIMITS[what]}"


# What is committed

# Spelt with brackets, so that this file does not find itself.
REGISTRY = re.compile(
    r"pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)|proxy[.]golang[.]org|crates[.]io|deb[.]debian[.]org"
    r"|repo1?[.]maven[.]|maven[.]org|sonatype[.]org"
)
LOCAL_PATH = re.compile(r"(?<![\w.~/-])/(?:work|tmp|root)/\w")


def committed_texts() -> Iterator[tuple[str, str]]:
    """(name, text) of all that git tracks, but for the golden stores, which are as the real broker wrote them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if name.startswith("tests/golden/") or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield name, data.decode("utf-8", "replace")


def test_module_names_of_tests_are_unique() -> None:
    """pytest imports a module of a folder without ``__init__.py`` by its bare name: two of one name end the run."""
    tests = ROOT / "tests"
    bare = [path for path in tests.rglob("*.py") if not (path.parent / "__init__.py").exists()]
    paths: dict[str, list[str]] = {}
    for path in bare:
        if path.name != "conftest.py":
            paths.setdefault(path.name, []).append(str(path.relative_to(tests)))
    tell([f"{name}: {', '.join(sorted(doubles))}" for name, doubles in paths.items() if len(doubles) > 1])


def test_no_registry_host_and_no_local_path() -> None:
    findings = []
    for name, text in committed_texts():
        for number, line in enumerate(text.splitlines(), 1):
            findings += [f"{name}:{number}: registry host {match[0]!r}" for match in REGISTRY.finditer(line)]
            findings += [f"{name}:{number}: path of one machine: {line.strip()}" for _ in LOCAL_PATH.finditer(line)]
    tell(findings)


def test_property_names_are_literals_only_in_model() -> None:
    """A property with a meaning has its name in ``model.message``; others import it."""
    names = {value for name, value in vars(message).items() if name.startswith("PROPERTY_")}
    tell(
        [
            f"{name}:{node.lineno}: {node.value!r} has a name in gantrymq.model.message"
            for name, module in modules().items()
            if name not in {"gantrymq.model.message", *NAMES_OF_OTHER_THINGS} and module.path.is_relative_to(SRC)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant) and node.value in names
        ]
    )


def test_paths_and_names_in_architecture_guide_exist() -> None:
    """The tables and the ten changes of docs/ARCHITECTURE.md: files, and the names in brackets behind them."""
    guide = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    table = guide.partition("## Where would I change")[2].partition("\n## The packages")[0]
    assert "## Ten changes" in table
    wrong = []
    for path, words in re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?)`(?: \(([^)]*)\))?", table):
        place = ROOT / "src" / "gantrymq" / path
        text = place.read_text("utf-8") if place.is_file() else ""
        wrong += [] if place.exists() else [f"{path} does not exist"]
        wrong += [
            f"{path} has no {word}" for word in re.findall(r"`(\w+)", words) if place.exists() and word not in text
        ]
    tell(wrong)


def test_size_of_filler_units_is_known_in_two_places() -> None:
    """Everything else asks ``is_filler``, ``is_message`` and ``is_unwritten`` of a unit."""
    knowing = {name for name, module in modules().items() if "BLANK_UNIT_SIZE" in module.path.read_text("utf-8")}
    assert knowing == {"gantrymq.format.queue_entry", "gantrymq.kernels.queues"}


def test_link_in_document_leads_to_file() -> None:
    tell(
        [
            f"{name}: there is no {target}"
            for name, text in committed_texts()
            if name.endswith(".md")
            for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
            if not ((ROOT / name).parent / target).exists()
        ]
    )


def test_requirements_lock_satisfies_pyproject() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [
        *pyproject["project"]["dependencies"],
        *(one for extra in pyproject["project"]["optional-dependencies"].values() for one in extra),
        *(one for group in pyproject["dependency-groups"].values() for one in group),
    ]
    locked: dict[str, list[str]] = {}
    lines = (ROOT / "requirements" / "dev.lock").read_text("utf-8").splitlines()
    for found in filter(None, (re.match(r"([\w.-]+)==([\w.!+]+)", line) for line in lines)):
        locked.setdefault(canonicalize_name(found[1]), []).append(found[2])
    tell(
        [
            f"pyproject.toml wants {one}, the lock has {locked.get(one.name)}: run make lock"
            for one in map(Requirement, wanted)
            if one.name != pyproject["project"]["name"]  # an extra that names others
            and not any(one.specifier.contains(version) for version in locked.get(canonicalize_name(one.name), []))
        ]
    )


def test_no_pattern_has_possessive_group() -> None:
    """Python before 3.11.5 (Debian 12 has 3.11.2) does not match (?:a|b)*+ as later ones do. Use (?>(?:a|b)*)."""
    group = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+[^+]")
    lines = [(path, line) for path in SRC.rglob("*.py") for line in path.read_text("utf-8").splitlines()]
    assert [f"{path}: {line}" for path, line in lines if group.search(line) and "``" not in line] == []
