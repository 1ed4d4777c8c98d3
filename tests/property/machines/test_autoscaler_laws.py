"""Laws of the autoscaler, whatever the job and its load. Source: docs/spec/autoscaler.md#evaluation, #parallelism, #gates.

The job is a chain whose vertices do exactly `rate` records a second for each subtask. It is always measured without noise.
"""

from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.engine.model.config import Settings
from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.autoscaler import Autoscaler
from penstock.ops.autoscaler.rules.evaluation import propose
from penstock.ops.autoscaler.rules.samples import (
    DecisionWanted,
    JobMeasured,
    JobRescaled,
    JobRestarted,
    Topology,
    VertexSample,
)
from penstock.ops.autoscaler.rules.settings import AutoscalerSettings, autoscaler_settings_of
from tests.tools.machines.topologies import topology_of

FLINK, PENSTOCK = "flink", "penstock"
LARGE = {"job.autoscaler.vertex.max-parallelism": 100_000}
"""So that no limit stands between a load and what it needs."""
M = 32_768


def settings_of(profile: str, **options) -> AutoscalerSettings:
    keys = {"penstock.elastic.profile": profile, **LARGE, **options}
    return autoscaler_settings_of(Settings(keys))


@dataclass
class Chain:
    """`rates`: of a subtask of each vertex. `factors`: records that each gets for one of the source. `load`: records per second."""

    rates: list[float]
    factors: list[float]
    parallelism: list[int]
    load: float
    lag: float = 0.0
    is_hash: bool = False

    def topology(self) -> Topology:
        ids = [VertexId(f"v{number}") for number in range(len(self.rates))]
        edges = [(*pair, self.is_hash) for pair in zip(ids, ids[1:], strict=False)]
        return topology_of(ids, edges, M)

    def sample(self, elapsed_s: float) -> dict[VertexId, VertexSample]:
        """Everything moves at the pace of the slowest; what is more than that waits before the source."""
        most = [
            rate * count / factor
            for rate, count, factor in zip(self.rates, self.parallelism, self.factors, strict=True)
        ]
        pace = min([*most, self.load]) if self.lag <= 0 else min(most)
        found = {}
        for number, (one, factor) in enumerate(zip(most, self.factors, strict=True)):
            behind = [*self.factors[number + 1 : number + 2], 0.0][0]
            found[VertexId(f"v{number}")] = VertexSample(
                self.parallelism[number],
                busy_ms_max=1000 * pace / one,
                back_pressured_ms=1000 * (1 - pace / one) if pace in most[number + 1 :] else 0,
                records_in_per_second=pace * factor,
                records_out_per_second=pace * behind,
                pending_records=max(0.0, self.lag + (self.load - pace) * elapsed_s)
                if number == 0
                else None,
            )
        return found


class Host:
    """Measures a chain every 10 s, and carries decisions out at once."""

    def __init__(self, chain: Chain, settings: AutoscalerSettings) -> None:
        self.chain, self.settings = chain, settings
        self.autoscaler = Autoscaler(settings, chain.topology())
        self.autoscaler.step(JobRestarted(), 0)
        self.now_ms = 0

    def next_decision(self, within_ms: int):
        """Return the first decision with orders. None: there is none in this time."""
        begin_ms = self.now_ms
        while self.now_ms < begin_ms + within_ms:
            self.now_ms += 10_000
            samples = self.chain.sample((self.now_ms - begin_ms) / 1000)
            self.autoscaler.step(JobMeasured(samples), self.now_ms)
            for decision in self.autoscaler.step(DecisionWanted(), self.now_ms):
                if decision.orders:
                    return decision
        return None

    def carry_out(self, decision) -> None:
        for vertex_id, count in decision.orders.items():
            self.chain.parallelism[int(vertex_id[1:])] = count
        counts = {VertexId(f"v{n}"): p for n, p in enumerate(self.chain.parallelism)}
        self.autoscaler.step(JobRescaled(counts, 0), self.now_ms)

    def rescales(self, within_ms: int) -> int:
        count = 0
        while (decision := self.next_decision(within_ms)) is not None:
            self.carry_out(decision)
            self.chain.lag = 0.0
            count += 1
            assert count < 20, "it does not settle"
        return count


BUSY, NO_LAG = st.floats(0.3, 3), st.just(0.0)


@st.composite
def chains(draw, *, utilizations=BUSY, lag=NO_LAG):
    """`utilizations`: how busy each vertex is to be at the load, above 1 if it cannot follow."""
    size = draw(st.integers(1, 4))
    rates = draw(st.lists(st.floats(50, 2_000), min_size=size, max_size=size))
    factors = [1.0, *draw(st.lists(st.floats(0.2, 5), min_size=size - 1, max_size=size - 1))]
    arriving = draw(st.floats(500, 50_000))
    shares = draw(st.lists(utilizations, min_size=size, max_size=size))
    counts = [
        max(1, round(arriving * factor / rate / share))
        for rate, factor, share in zip(rates, factors, shares, strict=True)
    ]
    return Chain(rates, factors, counts, arriving, draw(lag))


HOUR = 3_600_000


QUICK = {
    "job.autoscaler.metrics.window": "60 s",
    "job.autoscaler.stabilization.interval": "0 s",
    "job.autoscaler.scale-down.interval": "120 s",
}


@given(
    st.one_of(chains(utilizations=st.floats(0.6, 2.5)), chains(utilizations=st.floats(0.2, 0.7))),
    st.sampled_from([FLINK, PENSTOCK]),
)
def test_a_steady_load_settles_within_two_steps(chain, profile):
    """Of a job that has too little, or too much: two steps of a doubling (2.5 / 0.7 < 4), or of 0.6 down (0.2 / 0.7 > 0.16)."""
    settings = settings_of(profile, **QUICK)
    assert Host(chain, settings).rescales(HOUR // 10) <= 2
    capacity = settings.capacity
    # What a restart of that length leaves behind has to be caught up, too, by a job that is smaller.
    least = 1 / (1 / capacity.utilization_min + capacity.restart_s / capacity.catch_up_s)
    for rate, factor, count in zip(chain.rates, chain.factors, chain.parallelism, strict=True):
        busy = chain.load * factor / (rate * count)
        assert busy <= capacity.utilization_max + 0.01
        # One subtask fewer would be too few, or it is busy enough.
        fewer = chain.load * factor / (rate * max(1, count - 1))
        assert count == 1 or fewer >= least - 0.01


@given(
    chains(lag=st.floats(301, 10_000), utilizations=st.floats(0.02, 0.99)),
    st.sampled_from([FLINK, PENSTOCK]),
)
def test_nothing_shrinks_during_a_backlog(chain, profile):
    """`lag`: in seconds of what the source reads; above 5 min at all times."""
    settings = settings_of(profile, **{"job.autoscaler.scale-down.interval": 0})
    host = Host(chain, settings)
    pace = min(
        r * p / f for r, p, f in zip(chain.rates, chain.parallelism, chain.factors, strict=True)
    )
    chain.lag *= pace
    chain.load = pace  # so the lag stays
    decision = host.next_decision(30 * 60_000)
    if decision is not None:
        assert all(change.after > change.before for change in decision.changes)
    assert host.autoscaler.latest.is_backlog


@given(chains(utilizations=st.floats(0.4, 0.7)), st.sampled_from([FLINK, PENSTOCK]))
def test_twice_the_load_needs_twice_the_subtasks(chain, profile):
    """Up to the rounding of one subtask; with half a load and a whole one that both can be followed, at the same parallelism."""
    settings = settings_of(
        profile,
        **{
            "job.autoscaler.scale-up.max-factor": 100_000,
            "job.autoscaler.scale-down.max-factor": 1.0,
        },
    )

    def proposed(load):
        one = Chain(chain.rates, chain.factors, list(chain.parallelism), load)
        host = Host(one, settings)
        host.next_decision(21 * 60_000)
        latest = host.autoscaler.latest
        assert latest is not None
        topology = one.topology()
        return [
            propose(vertex, topology, settings.step).wanted for vertex in latest.vertices.values()
        ]

    assume(
        all(
            chain.load * f < r * p
            for r, f, p in zip(chain.rates, chain.factors, chain.parallelism, strict=True)
        )
    )
    half, whole = proposed(chain.load / 2), proposed(chain.load)
    for less, more in zip(half, whole, strict=True):
        assert 2 * less - 2 <= more <= 2 * less + 1


@given(
    chains(utilizations=st.floats(0.05, 20)),
    st.sampled_from([FLINK, PENSTOCK]),
    st.integers(1, 20),
    st.integers(0, 40),
    st.booleans(),
)
def test_a_new_parallelism_lies_within_its_limits(chain, profile, least, more, is_hash):
    """Between minimum and maximum; who is outside of them already goes no farther out."""
    most = least + more
    chain.is_hash = is_hash
    options = {
        "job.autoscaler.vertex.min-parallelism": least,
        "job.autoscaler.vertex.max-parallelism": most,
        "job.autoscaler.scale-down.interval": 0,
    }
    before = list(chain.parallelism)
    decision = Host(chain, settings_of(profile, **options)).next_decision(21 * 60_000)
    for change in decision.changes if decision else ():
        now = before[int(change.vertex_id[1:])]
        assert change.before == now
        assert min(now, least) <= change.after <= max(now, most)
        assert change.after != now
