"""Jobs that are rescaled in the simulator: what must hold holds, and planted bugs are caught."""

from dataclasses import replace
from functools import cache, partial
from unittest.mock import patch

import pytest

from penstock.engine.hosting.jobmanager.ha.guard import JobGuard
from penstock.engine.machines.checkpoints.coordinator import CheckpointCoordinator
from penstock.engine.machines.checkpoints.gateway import CheckpointGateway
from penstock.engine.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.engine.machines.generations import desired_resources
from penstock.engine.machines.generations.adaptive_master import (
    AdaptiveMaster,
    RescaleTimeline,
    State,
    Trigger,
)
from penstock.engine.machines.generations.desired_resources import DesiredResources
from penstock.engine.machines.job import handed_over
from penstock.engine.machines.job.handed_over import HandedOver
from penstock.engine.machines.job.handover_changes import HandoverChanges
from penstock.engine.machines.job_state.job_slots import JobSlots
from penstock.engine.machines.rescaling.transition_manager import TransitionManager
from simulation.elastic import ElasticName
from simulation.world import SeedResult, run_seed
from tests.sim.planting import Plants, swap

SEEDS = range(10)
MOST_SEEDS = 40
LIKELY = {
    "the_end_of_the_job_leaves_a_rescale_open": 7,
    "tasks_do_not_hear_that_the_handover_is_given_up": 5,
    "slots_that_come_are_not_noticed": 15,
    "vertices_that_share_their_places_are_parted": 16,
    "what_is_asked_for_later_is_forgotten": 18,
    "a_handover_that_is_given_up_begins_all_anew": 4,
}
"""Seeds that have caught a bug: they are tried first, all others after them."""
plant = Plants(partial(run_seed, is_elastic=True))


@plant
def attempts_of_a_generation_begin_at_nought(stack):
    """Late messages of a former generation could be taken for those of the new one."""
    swap(stack, HandedOver, "first_attempt", property(lambda _self: 0))


@plant
def the_next_generation_does_not_wait_for_the_end_of_the_former(stack):
    real = HandoverChanges.is_over.fget

    def is_over(self):
        return real(self) or self.handover.is_complete

    swap(stack, HandoverChanges, "is_over", property(is_over))


@plant
def tasks_do_not_hear_that_the_handover_is_given_up(stack):
    real = CheckpointGateway.notify_aborted

    def notify_aborted(self, pending, latest_completed_id):
        if not pending.request.is_handover:
            real(self, pending, latest_completed_id)

    swap(stack, CheckpointGateway, "notify_aborted", notify_aborted)


@plant
def there_is_no_cooldown(stack):
    real = TransitionManager.__init__

    def begin(self, timings, now_ms):
        real(self, replace(timings, cooldown_ms=0), now_ms)

    swap(stack, TransitionManager, "__init__", begin)


@plant
def a_vertex_gets_one_subtask_more_than_it_may_have(stack):
    real = DesiredResources.parallelism

    def parallelism(self, slots):
        found = real(self, slots)
        if found is None:
            return None
        return {one: count + (count > 1) for one, count in found.items()}

    swap(stack, DesiredResources, "parallelism", parallelism)


@plant
def the_next_generation_begins_with_an_older_checkpoint(stack):
    real = JobCheckpoints.restore

    def restore(self, vertices):
        latest = self.store.latest
        if latest is not None and len(self.store) > 1 and vertices and not self._plan:
            self.store._checkpoints.pop()
        return real(self, vertices)

    swap(stack, JobCheckpoints, "restore", restore)


@plant
def what_runs_on_gets_new_attempts(stack):
    real = handed_over.run_on

    def go_on(vertex, old):
        real(vertex, old)
        vertex.execution = replace(old.execution, attempt_id=_next(vertex))

    swap(stack, handed_over, "run_on", go_on)


@plant
def what_runs_on_stops_behind_the_checkpoint_too(stack):
    real = CheckpointGateway.trigger

    def trigger(self, pending):
        kept, pending.request = pending.request, replace(pending.request, kept=frozenset())
        real(self, pending)
        pending.request = kept

    swap(stack, CheckpointGateway, "trigger", trigger)


@plant
def a_vertex_runs_on_beside_a_neighbour_that_does_not(stack):
    def untouched(graph, changed):
        return frozenset(graph.vertices) - frozenset(changed)

    swap(stack, desired_resources, "untouched", untouched)


@plant
def the_end_of_the_job_leaves_a_rescale_open(stack):
    swap(stack, RescaleTimeline, "end_with", lambda _self, _status, _now_ms: None)


@plant
def slots_that_come_are_not_noticed(stack):
    unnoticed = {Trigger.RESOURCES_CHANGED, Trigger.TIMER_FIRED, Trigger.WAIT_TIMED_OUT}
    rows = {pair: row for pair, row in AdaptiveMaster.TABLE.items() if pair[1] not in unnoticed}
    stack.enter_context(patch.dict(AdaptiveMaster.TABLE, rows, clear=True))


@plant
def what_is_asked_for_later_is_forgotten(stack):
    real = AdaptiveMaster._on_rescale

    def on_rescale(self, event):
        known = self.desired
        effects = real(self, event)
        if known is not None and known.desired_slots < self.desired.desired_slots:
            self.desired = known
        return effects

    swap(stack, AdaptiveMaster, "_on_rescale", on_rescale)


@plant
def a_generation_is_placed_on_what_leaves(stack):
    swap(stack, JobSlots, "leave", lambda _self, _resource_ids: None)


@plant
def vertices_that_share_their_places_are_parted(stack):
    swap(stack, DesiredResources, "_can_run", lambda _self, _parallelism: True)


@plant
def a_handover_that_is_given_up_begins_all_anew(stack):
    row = State.RESTARTING, Trigger.HANDOVER_FAILED
    real = AdaptiveMaster.TABLE[row]

    def begin_all_anew(master):
        for vertex in master.generation.state.graph.vertices:
            vertex.execution = replace(vertex.execution, attempt_id=_next(vertex))
        return real(master)

    stack.enter_context(patch.dict(AdaptiveMaster.TABLE, {row: begin_all_anew}))


@plant
def the_next_driver_does_not_know_what_was_asked_for(stack):
    swap(stack, JobGuard, "asked_before", lambda _self, _graph: None)


@plant
def the_next_driver_begins_from_nothing(stack):
    real = AdaptiveMaster.__init__

    def begin(self, graph, settings, now_ms, completed=(), requirements=None):
        real(self, graph, settings, now_ms, (), requirements)

    swap(stack, AdaptiveMaster, "__init__", begin)


@plant
def the_next_driver_counts_its_checkpoints_anew(stack):
    real = CheckpointCoordinator.__init__

    def begin(self, graph, settings, *more, **named):
        real(self, graph, replace(settings, first_id=1), *more, **named)

    swap(stack, CheckpointCoordinator, "__init__", begin)


def _next(vertex):
    attempt_id = vertex.execution.attempt_id
    return replace(attempt_id, attempt=attempt_id.attempt + 1)


@cache
def result_of(seed: int) -> SeedResult:
    return run_seed(seed, is_elastic=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_must_hold_holds(seed):
    result = result_of(seed)
    assert result.violation is None, result.violation


def test_the_seeds_look_at_every_invariant_and_rescale_often():
    results = [result_of(seed) for seed in SEEDS]
    seen = sum((result.elastic for result in results), start=results[0].elastic)
    assert {str(name) for name in ElasticName} <= {name for name, count in seen.items() if count}
    assert sum(result.rescales for result in results) >= 100
    assert sum(result.partial for result in results) >= 20
    assert sum(result.takeovers for result in results) >= 3


def test_a_seed_gives_the_same_run_again():
    one, other = (run_seed(7, is_elastic=True, is_traced=True) for _ in range(2))
    assert one.trace == other.trace


@pytest.mark.parametrize("name", plant.names)
def test_a_planted_bug_is_caught(name):
    seeds = (LIKELY.get(name, 0), *range(MOST_SEEDS))
    assert plant.caught(name, seeds) is not None, f"{name} was not caught"
