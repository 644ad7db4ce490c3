"""One message as it came over the wire, made into a record without putting its properties together anew.

Source: MessageExtEncoder.encode.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.broker.wire_batch import WireRecords
from gantrymq.model.host import Host
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.put_result import PhyOffsets


@dataclass(slots=True)
class WireMessage(WireRecords):
    """A SEND_MESSAGE; ``properties`` are those of its record, encoded, each with its trailing separator."""

    flag: int
    properties: bytes

    def measure(self, store_host: Host) -> int:
        """How much room its record takes."""
        return self.template(store_host).size_bytes + len(self.body) + len(self.properties)

    def write(self, file: MappedFile, queue_offset: int, store_timestamp_ms: int, store_host: Host) -> PhyOffsets:
        """Write the record behind the last byte of a file that has room; its physical offset."""
        phy_offset = file.file_from_offset + file.wrote_position
        template = self.template(store_host)
        file.write(
            self._encode(template, self.body, self.flag, self.properties, queue_offset, phy_offset, store_timestamp_ms)
        )
        return [phy_offset]
