"""How many files a process may have open. Imports nothing of ours: a command that only prints its help calls it too."""

import resource
from contextlib import suppress


def allow_many_descriptors() -> None:
    """Let this process have as many files open as it may, as the JVM does: a store has one or two for each queue."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # there are systems where a limit of none may not be set
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
