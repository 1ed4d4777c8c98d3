"""A partition read over a remote channel, as far as credit goes: encoder, bytes, sequence numbers, no socket."""

from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from tests.tools.runtime.gates import Sender


class Remote:
    """A view that reads a partition through an encoder, bytes and a remote channel, as far as credit goes."""

    def __init__(self, part, index, gate, place) -> None:
        self.channel = gate.channel(place)
        self.sender = Sender(self.channel)
        self.credit = self.channel.first_credit
        self.frames: list = []
        client = gate.context.host.clients[self.channel]
        client.on_credit = self.on_credit
        self.view = part.create_view(index, self)
        self.notify_data()

    def on_credit(self, credit) -> None:
        self.credit += credit
        self.notify_data()

    def notify_data(self) -> None:
        while self.frames or self.view.is_available(has_credit=self.credit > 0):
            if not self.frames:
                polled = self.view.poll()
                if polled is None:
                    return
                self.backlog = polled.backlog
                is_data = isinstance(polled.element, (RowBatch, ColumnBatch))
                self.frames = halves(polled.element) if is_data else [polled.element]
            if isinstance(self.frames[0], (RowBatch, ColumnBatch)):
                if self.credit == 0:
                    return
                self.credit -= 1
            self.sender.send(self.frames.pop(0), self.backlog + len(self.frames))


def halves(batch) -> list:
    """Frames of at most two rows."""
    return [batch.slice(at, min(at + 2, len(batch))) for at in range(0, len(batch), 2)]
