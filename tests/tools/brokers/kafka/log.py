"""One partition: record batches as producers wrote them, with offsets; what of it may be seen."""

import struct
from dataclasses import dataclass, field

HEADER = struct.Struct(">qiibIhiqqqhii")  # a record batch of format 2, up to its records
TRANSACTIONAL, CONTROL = 0x10, 0x20


@dataclass
class StoredBatch:
    base: int
    last: int
    data: bytes
    producer_id: int
    is_transactional: bool
    is_control: bool
    max_timestamp: int


@dataclass
class PartitionLog:
    start: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    open_since: dict[int, int] = field(default_factory=dict)
    """First offset of a producer's transaction that has not ended."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer, first offset, offset of the marker)."""
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def end(self):
        return self.batches[-1].last + 1 if self.batches else self.start

    @property
    def stable_end(self):
        return min(self.open_since.values(), default=self.end)

    def append(self, records):
        """Batches as they come in a produce request. Returns the first offset."""
        first = self.end
        while records:
            (_, length, _, _, _, attributes, last_delta, _, max_stamp, pid, epoch, sequence, _) = (
                HEADER.unpack_from(records)
            )
            data, records = records[: 12 + length], records[12 + length :]
            if pid >= 0 and sequence >= 0:
                if sequence <= self.sequences.get((pid, epoch), -1):
                    continue  # sent again: it is there
                self.sequences[pid, epoch] = sequence + last_delta
            base = self.end
            is_transactional = bool(attributes & TRANSACTIONAL)
            if is_transactional:
                self.open_since.setdefault(pid, base)
            data = struct.pack(">q", base) + data[8:]
            self.batches.append(
                StoredBatch(base, base + last_delta, data, pid, is_transactional, False, max_stamp)
            )
        return first

    def end_transaction(self, producer_id, epoch, is_commit):
        """Write the marker."""
        first = self.open_since.pop(producer_id, None)
        if first is None:
            return
        base = self.end
        if not is_commit:
            self.aborted.append((producer_id, first, base))
        data = _control_batch(base, producer_id, epoch, is_commit)
        self.batches.append(StoredBatch(base, base, data, producer_id, True, True, -1))

    def read(self, offset, limit, max_bytes):
        """Bytes of batches from the one with this offset on, below `limit`."""
        found = []
        for batch in self.batches:
            if batch.last >= offset and batch.base < limit:
                found.append(batch.data)
                max_bytes -= len(batch.data)
                if max_bytes <= 0:
                    break
        return b"".join(found)

    def aborted_in(self, offset):
        return [(producer, first) for producer, first, marker in self.aborted if marker >= offset]

    def visible(self):
        """How many records are committed, or outside of transactions."""
        end = self.stable_end
        return sum(
            batch.last - batch.base + 1
            for batch in self.batches
            if batch.last < end and not batch.is_control and not self._is_aborted(batch)
        )

    def _is_aborted(self, batch):
        return batch.is_transactional and any(
            producer == batch.producer_id and first <= batch.base < marker
            for producer, first, marker in self.aborted
        )

    def offset_at(self, timestamp):
        """Of the first batch whose newest record is that young: tests write one record in each. None: none is."""
        for batch in self.batches:
            if not batch.is_control and batch.max_timestamp >= timestamp:
                return batch.base, batch.max_timestamp
        return None


def _control_batch(base, producer_id, epoch, is_commit):
    key = struct.pack(">hh", 0, 1 if is_commit else 0)
    value = struct.pack(">hi", 0, 0)
    body = b"\x00\x00\x00" + _varint(len(key)) + key + _varint(len(value)) + value + b"\x00"
    record = _varint(len(body)) + body
    attributes = TRANSACTIONAL | CONTROL
    length = HEADER.size - 12 + len(record)
    head = HEADER.pack(base, length, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, -1, 1)
    return head + record


def _varint(number):
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
