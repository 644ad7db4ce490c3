"""What hatchling runs: the kernels are compiled into a wheel, and the README becomes the description on an index."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_ROOT = Path(__file__).parent


class KernelBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel holds the library for every variant of this machine's processors, so it is for this platform.

    An editable install holds none: a checkout builds its own (``gantrymq.kernels.loader``).
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """A packaged linker where the system has none."""
        have = os.environ.get("CC") or any(map(shutil.which, ("cc", "gcc", "clang")))
        return [] if have else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library and name its files and the platform."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, str(_ROOT / "src"))
        from gantrymq.kernels.build import build
        from gantrymq.kernels.loader import INDEX
        from gantrymq.kernels.variants import variants_of

        folder = _ROOT / "build" / "kernels"
        index = build(variants_of(platform.machine()), folder, stamped=False)
        for name in (INDEX, index["library"]):
            build_data["force_include"][str(folder / name)] = f"gantrymq/kernels/built/{name}"
        facts = folder.parent / "build.json"
        facts.write_text(json.dumps(_build_facts()))
        build_data["force_include"][str(facts)] = "gantrymq/build.json"
        build_data["shared_data"].update(_shared_data(folder.parent / "share"))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform_tag()}"


class DescriptionHook(MetadataHookInterface):
    """The description on a package index is README.md without relative links and images, which lead nowhere there."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field ``readme``."""
        text = (_ROOT / "README.md").read_text("utf-8")
        text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", text)
        text = re.sub(r"\[([^]]*)\]\((?!https?:)([^)]*)\)", _plain_link, text)
        text += "\nThe files that this page names are in the source archive.\n"
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _plain_link(link: re.Match[str]) -> str:
    text, target = link.groups()
    return f"`{target}`" if target.endswith(text) else f"{text} (`{target}`)"


def _shared_data(folder: Path) -> dict[str, str]:
    """The manual page and the shells' completions, which go where programs of the environment's prefix look."""
    from gantrymq.cli.completion import Shell, script
    from gantrymq.cli.man import manual_page

    texts = {
        "man/man1/gantrymq.1": manual_page(),
        "bash-completion/completions/gantrymq": script(Shell.BASH),
        "zsh/site-functions/_gantrymq": script(Shell.ZSH),
        "fish/vendor_completions.d/gantrymq.fish": script(Shell.FISH),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return {str(folder / name): f"share/{name}" for name in texts}


def _build_facts() -> dict[str, str | None]:
    """What ``gantrymq --version`` says of a wheel: no times, so that the same commit gives the same wheel."""
    commit = None
    if (_ROOT / ".git").exists() and shutil.which("git"):  # a source archive inside another repository has no commit
        command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        commit = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return {"commit": commit or None, "machine": platform.machine()}


def _platform_tag() -> str:
    """The library needs nothing but memcpy and its like of a C library: glibc has all of them since 2.14."""
    machine = platform.machine().lower()
    if sys.platform == "darwin":
        return f"macosx_11_0_{machine}"
    return f"manylinux_2_17_{machine}" if platform.libc_ver()[0] == "glibc" else f"linux_{machine}"
