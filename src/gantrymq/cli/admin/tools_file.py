"""RocketMQ's ``conf/tools.yml``: the account of mqadmin.

Source: AclUtils.getAclRPCHook, MixAll.ACL_CONF_TOOLS_FILE.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from gantrymq.errors import ConfigError

_HOME = "ROCKETMQ_HOME"
_GIVEN = ("--access-key", "--secret-key", "--profile")  # options that name another account
_GIVEN_BY = ("GANTRYMQ_ACCESS_KEY", "GANTRYMQ_PROFILE")
# The file is YAML with one key a line. A line reader needs no PyYAML, and reads 0123 as a text.
_LINE = re.compile(r"""(accessKey|secretKey)\s*:\s*(?:"([^"]*)"|'([^']*)'|([^#]*?))\s*(?:\s#.*)?""")


def with_account(words: Sequence[str]) -> list[str]:
    """The words of a command, with the account of tools.yml unless an option or a variable has another one.

    Raises ConfigError if the file cannot be read, or has only one of both keys.
    """
    home = os.environ.get(_HOME)
    is_given = any(word.partition("=")[0] in _GIVEN for word in words) or any(map(os.environ.get, _GIVEN_BY))
    account = {} if not home or is_given else _account(Path(home) / "conf" / "tools.yml")
    if not account:
        return list(words)
    options = [f"--access-key={account['accessKey']}", f"--secret-key={account['secretKey']}"]
    end = list(words).index("--") if "--" in words else len(words)  # what follows is an argument
    return [*words[:end], *options, *words[end:]]


def _account(path: Path) -> dict[str, str]:
    """Both keys of the file; empty without the file, or without keys in it."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), str(error), f"a file that can be read ({_HOME})") from None
    values = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.rstrip()):
            values[match[1]] = next((group for group in match.groups()[1:] if group is not None), "")
    given = {key: value for key, value in values.items() if value}
    if len(given) == 1:
        raise ConfigError(str(path), ", ".join(given), "accessKey and secretKey, or neither")
    return given
