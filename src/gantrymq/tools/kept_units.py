"""Messages of a damaged record whose old unit stays, and which readers get as they were put.

Where the newest messages of a queue are damaged, a rebuild keeps their units, so that their offsets are not given out
again (:mod:`gantrymq.tools.given_out`). A reader looks at no CRC: it gets what lies there, if that is a record. Where
one bit of the record's bodyCRC is wrong and nothing else, this is the message, and it is not lost.

Thread rule: plain functions.
"""

from __future__ import annotations

from gantrymq.format.record import body_crc
from gantrymq.tools.loss import LossAccount, LostMessages, RepairedRecord
from gantrymq.tools.queue_files import ResultQueues
from gantrymq.tools.record_lookup import RecordLookup

BODY_CRC_AT = 8  # of a record
_SAID = "that its body has another CRC, which differs in one bit"


def forget_readable(account: LossAccount, result: ResultQueues, lookup: RecordLookup, end: int) -> None:
    """Name the lost messages of ``account`` that readers of ``result`` get unchanged as repaired.

    The log stays up to ``end``; ``lookup`` reads it.
    """

    def is_readable(one: LostMessages) -> bool:
        is_kept = (
            one.count == 1
            and one.phy_end <= end
            and result.stands((one.topic, one.queue_id), one.begin, one.phy_offset)
        )
        return is_kept and _has_flipped_crc(lookup, one.phy_offset)

    readable = [one for one in account.messages if is_readable(one)]
    places = {one.phy_offset for one in readable}
    account.messages = [one for one in account.messages if one not in readable]
    account.ranges = [one for one in account.ranges if one.start not in places]
    account.repaired += [
        RepairedRecord(one.topic, one.queue_id, one.begin, one.phy_offset, one.phy_end - one.phy_offset, _SAID)
        for one in readable
    ]


def _has_flipped_crc(lookup: RecordLookup, place: int) -> bool:
    """Whether the bodyCRC of a record differs from its body's in one bit: a bit of the body changes many of it."""
    found = lookup.record(place)
    if found is None:
        return False
    raw, layout = found
    said = int.from_bytes(raw[BODY_CRC_AT : BODY_CRC_AT + 4], "big")
    body = raw[layout.body_at : layout.body_at + layout.body_length]
    return (said ^ body_crc(body)).bit_count() == 1
