"""One topic, or one partition of one: entries as producers framed them, subscriptions, what deduplication remembers."""

from dataclasses import dataclass, field

LEDGER = 7


@dataclass
class Entry:
    """A message or a batch of them; `data`: from the checksum on, as it goes to consumers."""

    data: bytes
    count: int
    publish_time: int
    producer: str
    sequence: int
    deliver_at: int
    is_batch: bool


@dataclass
class Subscription:
    """`read`: the entry that is sent next. `acknowledged`: all entries up to this one are."""

    read: int
    acknowledged: int
    consumer: object = None


@dataclass
class TopicLog:
    name: str
    deduplicates: bool = True
    entries: list[Entry] = field(default_factory=list)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    """By the name of a producer: the last one that was written."""
    start: int = 0
    """Entries below were removed."""

    @property
    def partition(self):
        _, mark, number = self.name.rpartition("-partition-")
        return int(number) if mark else -1

    @property
    def end(self):
        return len(self.entries)

    @property
    def messages(self):
        return sum(entry.count for entry in self.entries[self.start :])

    def append(self, data, metadata):
        """The number of the entry; None: it was written before."""
        producer, sequence = metadata["producer_name"], metadata["sequence_id"]
        if self.deduplicates:
            if sequence <= self.sequences.get(producer, -1):
                return None
            self.sequences[producer] = max(sequence, metadata.get("highest_sequence_id", 0))
        self.entries.append(
            Entry(
                data,
                metadata.get("num_messages_in_batch", 1),
                metadata["publish_time"],
                producer,
                sequence,
                metadata.get("deliver_at_time", 0),
                "num_messages_in_batch" in metadata,
            )
        )
        return len(self.entries) - 1

    def last_sequence(self, producer):
        """What a producer of this name is told when it connects."""
        return self.sequences.get(producer, -1) if self.deduplicates else -1

    def message_id(self, number):
        """-1: there is none."""
        found = {"ledgerId": LEDGER, "entryId": number}
        if self.partition >= 0:
            found["partition"] = self.partition
        if number >= self.start and self.entries[number].is_batch:
            found["batch_index"] = self.entries[number].count - 1
        return found

    def place(self, message_id, *, after=False):
        """Of the entry with this id, or of the one that follows it, as far as there is one."""
        ledger, entry = message_id["ledgerId"], message_id["entryId"]
        if ledger < 0:  # the earliest
            return self.start
        if ledger > LEDGER:  # the latest
            return self.end
        return min(max(entry + after, self.start), self.end)

    def place_at(self, publish_time):
        for number in range(self.start, self.end):
            if self.entries[number].publish_time >= publish_time:
                return number
        return self.end
