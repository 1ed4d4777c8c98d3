"""A sink whose committables are counts of values, which its committer adds up in this process."""

from collections import Counter

from penstock.datastream.connectors import Committer, Sink


class CountingSink(Sink):
    """Its total is of the last attempts only. Its committables: what `make_committable` makes of counts."""

    def __init__(self, make_committable=lambda counts: counts):
        self.make_committable = make_committable
        self.total = Counter()

    def create_writer(self, context):
        return CountingWriter(self.make_committable)

    def create_committer(self):
        return Adding(self.total)


class CountingWriter:
    def __init__(self, make_committable):
        self.make_committable = make_committable
        self.counts = Counter()

    def write(self, batch, watermark_ms):
        self.counts.update(batch.values)

    def prepare_commit(self):
        return [self.make_committable(self.counts)]

    def close(self):
        pass


class Adding(Committer):
    def __init__(self, total):
        self.total = total

    def commit(self, committables):
        for counts in committables:
            self.total.update(counts)

    def abort(self, job_prefix):
        pass
