"""The limit of open files. Imports nothing of ours, because a command that only prints its help calls it too."""

import resource
from contextlib import suppress


def allow_many_descriptors() -> None:
    """Raise this process's limit of open files to the maximum, as the JVM does: a queue takes one or two files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems refuse an infinite limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
