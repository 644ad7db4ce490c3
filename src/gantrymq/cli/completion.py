"""``gantrymq completion``: the shell's script, and the answers to the questions that the script asks."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from typer._click import Command

COMPLETE_VARIABLE = "_GANTRYMQ_COMPLETE"


class Shell(StrEnum):
    """The shells that typer has a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the script that completes commands and options in a shell.

    Let the shell read it at its start.

    Examples of use:

        gantrymq completion bash > ~/.local/share/bash-completion/completions/gantrymq
        gantrymq completion zsh > "${fpath[1]}/_gantrymq"
        gantrymq completion fish > ~/.config/fish/completions/gantrymq.fish
    """
    print(script(shell))


def script(shell: Shell) -> str:
    """The script as text."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    return get_completion_script(prog_name="gantrymq", complete_var=COMPLETE_VARIABLE, shell=shell.value)


def answer_shell(command: Command) -> int:
    """Print the words that can follow what the user has typed, which the script passes in the environment."""
    from typer.completion import completion_init, shell_complete  # type: ignore[attr-defined]

    completion_init()
    return shell_complete(command, {}, "gantrymq", COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
