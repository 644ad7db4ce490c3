"""Runs: requests of one kind that arrived together and are answered together.

A broker's most frequent requests are small and arrive by the dozen. Decoding each one costs more than executing it, so
a processor may take the frames of a run without decoding them into commands.
"""

from __future__ import annotations

from gantrymq.remoting.command import RemotingCommand


class CommandRun(RemotingCommand):
    """The requests whose frames are ``data[begin:end]``, all with this code.

    :func:`gantrymq.remoting.connection.split_run` decodes them one by one.
    """

    __slots__ = ("begin", "data", "end")

    def __init__(self, code: int, data: bytes, begin: int, end: int) -> None:
        super().__init__(code)
        self.data, self.begin, self.end = data, begin, end
