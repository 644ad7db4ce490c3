"""A row of the broker's table of request codes. Each file of processors ends with a function that returns its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from gantrymq.broker.acl.permissions import Permission
from gantrymq.remoting.transport.dispatcher import Processor


@dataclass(frozen=True, slots=True)
class Route:
    """The processor of a request code, and the permission that an account needs for it.

    With ``after_dispatch`` a request waits until what was in the log at its arrival is in the queues. A request that
    reads queues without it is answered from old queues, so each row says it.
    """

    processor: Processor
    permission: Permission
    _: KW_ONLY
    after_dispatch: bool


Routes = Mapping[int, Route]
