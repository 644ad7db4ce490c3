"""One message as it came over the wire, made into a record without putting its properties together anew.

Source: MessageExtEncoder.encode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gantrymq.broker.wire_batch import WireRecords
from gantrymq.format import record
from gantrymq.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from gantrymq.model.host import Host
from gantrymq.model.java import encode_utf8
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.outgoing import topic_bytes


@dataclass(slots=True)
class WireMessage(WireRecords):
    """A SEND_MESSAGE; ``properties`` are those of its record, encoded, each with its trailing separator."""

    flag: int
    properties: bytes

    def size_bytes(self, store_host: Host) -> int:
        """How much room its record takes."""
        lengths = len(self.body), len(topic_bytes(self.topic)), len(self.properties)
        return record.record_size(1, self._flags(store_host), *lengths)

    def write(self, file: MappedFile, queue_offset: int, store_timestamp_ms: int, store_host: Host) -> list[int]:
        """Write the record behind the last byte of a file that has room; its physical offset."""
        phy_offset = file.file_from_offset + file.wrote_position
        raw = self._encode(
            file,
            queue_offset,
            store_timestamp_ms,
            store_host,
            body=self.body,
            flag=self.flag,
            properties=self.properties,
        )
        file.write(raw)
        return [phy_offset]


def properties_as_they_came(text: str, properties: Mapping[str, str], more: str) -> bytes | None:
    """The bytes of ``properties``, which were read from ``text``, and of ``more`` behind them.

    None where they are not ``text`` as it stands: a name that comes twice, an entry without a name or a value, a
    separator within a value.
    """
    count, separators = len(properties), text.count(PROPERTY_SEPARATOR)
    if not text.endswith(PROPERTY_SEPARATOR):
        text, separators = text + PROPERTY_SEPARATOR, separators + 1
    if count != separators or count != text.count(NAME_VALUE_SEPARATOR):
        return None
    return encode_utf8(text + more)
