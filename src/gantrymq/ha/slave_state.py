"""The states of a slave, as its master sees it.

==========================  ==========================================================================================
state                       meaning
==========================  ==========================================================================================
connected                   it has not said yet how far its log goes
catching up                 haMaxGapNotInSync or more behind the master's end
in sync                     less behind
--------------------------  ------------------------------------------------------------------------------------------
behind retention            it asked for an offset that the master has deleted; its store must be copied again
cut off by retention        the master deleted the file that it was copying, because the disk was too full
ahead                       its log is longer than the master's, which has lost its end or is another broker's
acknowledged beyond end     it acknowledged bytes that the master does not have
garbage                     it sent bytes that are no report
silent                      it sent nothing for haHousekeepingInterval
not allowed                 its address is not in haAllowedSlaves
not logged in               haAuthenticationEnabled is set, and it has no user that may copy the log
no tls                      haTlsEnable is set, and it speaks no TLS or has no certificate that is trusted
unreadable                  the master cannot read its own log at the offset that comes next
refused                     as many connections as maxConnections are open
left                        it closed its connection
==========================  ==========================================================================================

The master closes the connection of the states below the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SlaveState(StrEnum):
    """The state of a slave; the table above says what each means."""

    CONNECTED = "connected"
    CATCHING_UP = "catching up"
    IN_SYNC = "in sync"
    BEHIND_RETENTION = "behind retention"
    CUT_OFF = "cut off by retention"
    AHEAD = "ahead"
    ACK_BEYOND_END = "acknowledged beyond end"
    GARBAGE = "garbage"
    SILENT = "silent"
    NOT_ALLOWED = "not allowed"
    NOT_LOGGED_IN = "not logged in"
    NO_TLS = "no tls"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class SlaveView:
    """A slave at one moment. Offsets are -1 before its request. ``is_voter``: acknowledgements of puts count it."""

    address: str
    state: SlaveState
    acked_offset: int
    next_offset: int
    bytes_per_second: int
    is_voter: bool
