"""Builds the library of kernels: compiles what has changed, links, and writes the index.

Each kernel is compiled for each variant to an object file that is named by the digest of its sources, so an edit
recompiles exactly what depends on it. A kernel depends on its module, on every module of gantrymq that this one
imports, directly or indirectly, and on ``compiler``. The digest covers their syntax trees without docstrings, so that
edits of comments, docstrings and layout compile nothing.

The system's linker makes one shared library of the objects: ``$CC``, else cc, gcc or clang, else Zig's as a Python
package (``ziglang``).

The index is written last, in one step, so an interrupted build leaves the previous library. A lock excludes a second
build. ``loader`` runs ``python -m gantrymq.kernels.build`` in a checkout.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from gantrymq.errors import KernelsError
from gantrymq.kernels.api import examples
from gantrymq.kernels.calls import kinds_of
from gantrymq.kernels.loader import FOLDER, INDEX, object_path, read_index, stamp
from gantrymq.kernels.variants import VARIANTS, Variant, choose, variants_of

_ROOT = Path(__file__).parent.parent
_KEPT_S = 7 * 24 * 3600
_TOLD_LINES = 20  # of the output of a failed compiler or linker


def main() -> int:
    """Build for this processor. Prints the reason of a failure."""
    try:
        build_here()
    except KernelsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def build_here() -> dict[str, Any]:
    """Bring the library of this checkout up to date, for this processor only. Returns its index.

    Raises KernelsError if that fails.
    """
    variant = choose([variant.name for variant in variants_of(os.uname().machine)])
    if variant is None:
        raise KernelsError(f"no kernels can be built for {os.uname().machine} processors")
    return build([variant], FOLDER, stamped=True)


def build(variants: Sequence[Variant], folder: Path, *, stamped: bool) -> dict[str, Any]:
    """Bring the library in ``folder`` up to date for these variants. Returns its index.

    With ``stamped`` the index records the state of the sources, so that later changes of them are detected. Raises
    KernelsError.
    """
    with _locked(folder):
        digests = _digests()
        index = read_index(folder)
        names = [variant.name for variant in variants]
        old = {} if index is None else {name: known["digest"] for name, known in index["kernels"].items()}
        if index is None or old != digests or index["variants"] != names:
            index = _build(variants, folder, digests)
        index["stamps"] = _stamps() if stamped else {}
        _write(folder / INDEX, orjson.dumps(index, option=orjson.OPT_INDENT_2))
        _remove_outdated(folder, index, variants)
        return index


def _build(variants: Sequence[Variant], folder: Path, digests: dict[str, str]) -> dict[str, Any]:
    missing = [
        (variant, [name for name in digests if not object_path(folder, variant, name, digests[name]).exists()])
        for variant in variants
    ]
    if any(names for _, names in missing):
        _say(f"gantrymq compiles its kernels, {max(len(names) for _, names in missing)} of them: up to a minute")
    _compile_all([(variant, names) for variant, names in missing if names], folder, digests)
    objects = [object_path(folder, variant, name, digest) for variant in variants for name, digest in digests.items()]
    kernels = {}
    for name, digest in digests.items():
        known = json.loads(object_path(folder, variants[0], name, digest).with_suffix(".json").read_bytes())
        kernels[name] = {"digest": digest, **known}
    return {
        "library": _link(objects, folder),
        "variants": [variant.name for variant in variants],
        "kernels": kernels,
    }


def _digests() -> dict[str, str]:
    """Return a digest for each kernel, of its sources, its argument types and the versions of the compiler."""
    try:
        made_by = " ".join(f"{package} {version(package)}" for package in ("numba", "llvmlite"))
    except PackageNotFoundError as error:
        raise KernelsError(
            f"{FOLDER}: the kernels are not compiled, and {error.name} is not installed to do so:"
            " install a built package, or pip install 'gantrymq[jit]'"
        ) from error
    processors = [variant[:3] for table in VARIANTS.values() for variant in table]
    digests = {}
    for kernel, example in examples():
        text = f"{made_by} {processors} {kinds_of(example)} {kernel_digest(kernel.module)}"
        digests[kernel.full_name] = sha256(text.encode()).hexdigest()[:16]
    return digests


def _stamps() -> dict[str, list[int]]:
    paths = kernel_sources(sorted({kernel.module for kernel, _ in examples()}))
    return {str(path.relative_to(_ROOT)): stamp(path) for path in paths}


def _compile_all(missing: list[tuple[Variant, list[str]]], folder: Path, digests: dict[str, str]) -> None:
    """Compile in as many processes as there are processors."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        shares = max(1, (os.cpu_count() or 1) // max(1, len(missing)))
        running = []
        for variant, names in missing:
            (Path(fresh) / variant.name).mkdir()
            for share in range(min(shares, len(names))):
                running.append(_start_compiler(variant, Path(fresh) / variant.name, names[share::shares]))
        said = [child.communicate()[1] for child in running]
        if any(child.returncode for child in running):
            raise KernelsError(f"a kernel cannot be compiled: {_last_lines(''.join(said))}")
        for variant, names in missing:
            for name in names:
                target = object_path(folder, variant, name, digests[name])
                target.parent.mkdir(parents=True, exist_ok=True)
                for ending in (".json", ".o"):
                    (Path(fresh) / variant.name / f"{name}{ending}").replace(target.with_suffix(ending))


def _start_compiler(variant: Variant, folder: Path, names: list[str]) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": variant.cpu,
        "NUMBA_CPU_FEATURES": variant.features,
        "PYTHONPATH": os.pathsep.join([str(_ROOT.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "gantrymq.kernels.compiler", variant.name, str(folder), *names]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _link(objects: list[Path], folder: Path) -> str:
    """Link one shared library, named by the digest of its bytes. Returns its name.

    Raises KernelsError if no linker is found, or if it fails.
    """
    command = linker()
    if command is None:
        raise KernelsError("no C compiler to link the kernels with: set CC to one, or pip install ziglang")
    fresh = folder / f"fresh-{os.getpid()}.so"
    try:
        # A list in a file keeps the command line short.
        with tempfile.NamedTemporaryFile("w", suffix=".list", dir=folder) as listed:
            listed.write("\n".join(shlex.quote(str(path)) for path in objects))
            listed.flush()
            arguments = [*command, "-shared", "-o", str(fresh), f"@{listed.name}", *_linker_arguments(command)]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KernelsError(f"{command[0]} cannot link the kernels: {_last_lines(done.stderr)}")
        name = f"kernels-{sha256(fresh.read_bytes()).hexdigest()[:16]}.so"
        with open(fresh, "rb") as file:
            os.fsync(file.fileno())  # a library truncated by a power cut would crash each process that loads it
        fresh.replace(folder / name)
        return name
    finally:
        fresh.unlink(missing_ok=True)


def _linker_arguments(command: list[str]) -> list[str]:
    """The library's code is read-only, and code that no entry calls is left out.

    The symbol of ISA-L stays undefined: ``loader`` opens the package that provides it.
    """
    if sys.platform == "darwin":
        return ["-undefined", "dynamic_lookup"]
    # Newer releases of zig reject ``-z text``, which is their default.
    text = "" if "ziglang" in command else "-z,text,"
    return ["-nostartfiles", f"-Wl,{text}-z,noexecstack,--gc-sections,-s"]


def linker() -> list[str] | None:
    """Return the linker's command, or None if there is none."""
    told = os.environ.get("CC")
    if told:
        return shlex.split(told)
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler:
        return [compiler]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


def _remove_outdated(folder: Path, index: dict[str, Any], variants: Sequence[Variant]) -> None:
    current_paths = {object_path(folder, variant, name, known["digest"])
            for variant in variants for name, known in index["kernels"].items()}  # fmt: skip
    for path in folder.glob("objects/*/*.o"):
        if (
            path not in current_paths and path.stat().st_mtime < time.time() - _KEPT_S
        ):  # another branch may need it again
            path.unlink()
            path.with_suffix(".json").unlink(missing_ok=True)
    for path in folder.glob("kernels-*.so"):
        if path.name != index["library"]:
            path.unlink()


def _write(path: Path, raw: bytes) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(raw)
    fresh.replace(path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise KernelsError(f"kernels cannot be built in {folder}: {error}") from error


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_TOLD_LINES:])


def _say(text: str) -> None:
    print(text, flush=True)


_PACKAGE = "gantrymq"
_COMPILER = f"{_PACKAGE}.kernels.compiler"
_ALWAYS = (_COMPILER, f"{_PACKAGE}.kernels.api", f"{_PACKAGE}.kernels.variants")
_DIGEST_LETTERS = 20
_HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def kernel_digest(module: str) -> str:
    """Return a digest of all code that the kernels of ``gantrymq.kernels.MODULE`` depend on, including the compiler.

    Raises OSError if a source cannot be read, SyntaxError if one is not valid Python.
    """
    names = {*_closure(f"{_PACKAGE}.kernels.{module}"), _COMPILER}
    return sha256("\n".join(f"{name} {_code_digest(_path(name))}" for name in sorted(names)).encode()).hexdigest()[
        :_DIGEST_LETTERS
    ]


def kernel_sources(modules: list[str]) -> list[Path]:
    """Return the files of all code that these kernel modules depend on, and of the tables of kernels and variants."""
    roots = [f"{_PACKAGE}.kernels.{module}" for module in modules]
    return sorted({_path(name) for name in _ALWAYS}.union(_path(name) for root in roots for name in _closure(root)))


@lru_cache(maxsize=256)
def _closure(root: str) -> frozenset[str]:
    """Return the modules of gantrymq that ``root`` imports, directly or indirectly, including itself."""
    closure: set[str] = set()
    ahead = [root]
    while ahead:
        name = ahead.pop()
        if name not in closure:
            closure.add(name)
            ahead.extend(_imported(name))
    return frozenset(closure)


@lru_cache(maxsize=256)
def _imported(name: str) -> tuple[str, ...]:
    return tuple(_imports(_parse(_path(name))))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_module(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == _PACKAGE:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [module for module in submodules if _is_module(module)]
            yield from modules
            if len(modules) < len(submodules):
                yield node.module


def _is_module(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == _PACKAGE and _path(name).exists()


def _path(name: str) -> Path:
    stem = _ROOT.joinpath(*name.split(".")[1:])
    package = stem / "__init__.py"
    return package if package.exists() else stem.with_suffix(".py")


@lru_cache(maxsize=256)
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), str(path))


@lru_cache(maxsize=256)
def _code_digest(path: Path) -> str:
    tree = _parse(path)
    for node in ast.walk(tree):
        if isinstance(node, _HAVE_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return sha256(ast.dump(tree).encode()).hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
