"""One row of a broker's table of request codes."""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.broker.acl.permissions import Permission
from gantrymq.remoting.transport.dispatcher import Processor


class Route(NamedTuple):
    """What answers a request code, and what an account must be allowed to ask."""

    processor: Processor
    permission: Permission
