"""Requests of one kind that one read brought, answered together.

A broker's busiest requests are small, and come by the dozen: taking each apart costs more than doing what it asks for.
So whoever knows such a kind may look at their frames before they become commands.
"""

from __future__ import annotations

from gantrymq.remoting.command import RemotingCommand


class CommandRun(RemotingCommand):
    """Stands for the requests whose frames are ``data[begin:end]``, all with its code.

    :func:`gantrymq.remoting.connection.split_run` gives them one by one.
    """

    __slots__ = ("begin", "data", "end")

    def __init__(self, code: int, data: bytes, begin: int, end: int) -> None:
        super().__init__(code)
        self.data, self.begin, self.end = data, begin, end
