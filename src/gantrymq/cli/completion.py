"""``gantrymq completion``: the shell's script, and the answers to the questions that the script asks."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from typer._click import Command

COMPLETE_VARIABLE = "_GANTRYMQ_COMPLETE"
# typer's script for zsh only registers a function. zsh runs a file of fpath at the first Tab, which then completes
# nothing.
_ZSH_REGISTERS = "compdef _gantrymq_completion gantrymq"
_ZSH_COMPLETES = f"""\
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _gantrymq_completion "$@"
else
  {_ZSH_REGISTERS}
fi"""


class Shell(StrEnum):
    """The shells that typer has a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the script that completes commands and options in a shell.

    Add the line of your shell to its start file (~/.bashrc; ~/.zshrc, after compinit; ~/.config/fish/config.fish). Or
    write the script into a directory where the shell looks for completions.

    Examples of use:

        source <(gantrymq completion bash)
        source <(gantrymq completion zsh)
        gantrymq completion fish | source
    """
    print(script(shell))


def script(shell: Shell) -> str:
    """The script as text."""
    from typer.completion import get_completion_script

    text = get_completion_script(prog_name="gantrymq", complete_var=COMPLETE_VARIABLE, shell=shell.value)
    return text.replace(_ZSH_REGISTERS, _ZSH_COMPLETES) if shell is Shell.ZSH else text


def answer_shell(command: Command) -> int:
    """Print the words that can follow what the user has typed, which the script passes in the environment."""
    from typer.completion import completion_init, shell_complete

    completion_init()
    return shell_complete(command, {}, "gantrymq", COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
