"""Whether the keys of a checkpoint's state are those of the program, and what attempts do to them if they are not.

Knows types, no state. Source: Flink StateAssignmentOperation, StateMigrationException ("the new key serializer must be
compatible"); differs: it is found when the job is submitted, and keys that can be converted are.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.engine.model.checkpoints import CompletedCheckpoint, OperatorCheckpoint
from penstock.engine.model.graph.job_graph import JobGraph, OperatorInfo
from penstock.engine.model.key_types import KeyMigration, KeyType, KeyVerdict, judge_keys


def verdict_on_keys(
    old: OperatorCheckpoint,
    operator: OperatorInfo,
    checkpoint: CompletedCheckpoint,
    *,
    allows_double: bool = False,
) -> KeyVerdict:
    """What becomes of the keys of one operator's state."""
    if operator.keys is None or not has_keyed(old):
        return KeyVerdict()
    verdict = judge_keys(keys_of(old), operator.keys, allows_double=allows_double)
    if verdict.migration is not None and verdict.migration.is_rerouted and is_in_flight(checkpoint):
        return KeyVerdict(
            f"its keys belong to other key groups now ({'; '.join(verdict.steps)}), but the "
            "checkpoint has data in flight, which "
            "was sent by the former keys. Begin with a savepoint, which has none"
        )
    return verdict


def migration_of(verdict: KeyVerdict, operator: OperatorInfo) -> KeyMigration | None:
    """The migration with the operator's name, for error texts."""
    if verdict.migration is None:
        return None
    return replace(verdict.migration, owner=named(operator.uid, operator.name))


def keys_of(old: OperatorCheckpoint) -> KeyType | None:
    """The type that the subtasks wrote; None: an earlier release wrote them."""
    found = (state.keys for state in old.subtasks if state is not None)
    return next((keys for keys in found if keys is not None), None)


def kinds_of(old: OperatorCheckpoint) -> tuple[str, ...]:
    """The classes of keys whose type was not declared, of all subtasks."""
    found = (state.keys for state in old.subtasks if state is not None)
    return tuple(sorted({kind for keys in found if keys is not None for kind in keys.kinds}))


def has_keyed(old: OperatorCheckpoint) -> bool:
    return any(state is not None and (state.keyed or state.databases) for state in old.subtasks)


def is_in_flight(checkpoint: CompletedCheckpoint) -> bool:
    """Whether the checkpoint has data that was sent and not processed."""
    states = (state for old in checkpoint.operators for state in old.subtasks if state is not None)
    return any(state.inputs_in_flight or state.outputs_in_flight for state in states)


def without_their_state(job: JobGraph, checkpoint: CompletedCheckpoint) -> list[OperatorInfo]:
    """Operators with keyed state of which the checkpoint knows nothing, although it has the state of others of the job."""
    known = {one.uid for one in checkpoint.operators}
    keyed = _keyed_operators(job)
    return [one for one in keyed if one.uid not in known] if finding(job, checkpoint) else []


def finding(job: JobGraph, checkpoint: CompletedCheckpoint) -> list[OperatorInfo]:
    """Operators with keyed state that find theirs."""
    holding = {one.uid for one in checkpoint.operators if has_keyed(one)}
    return [one for one in _keyed_operators(job) if one.uid in holding]


def empty_start(operator: OperatorInfo, job: JobGraph, checkpoint: CompletedCheckpoint) -> str:
    """A warning about an operator of `without_their_state`."""
    others = ", ".join(named(one.uid, one.name) for one in finding(job, checkpoint))
    return (
        f"{named(operator.uid, operator.name)} has keyed state, and checkpoint "
        f"{checkpoint.checkpoint_id} knows no operator of "
        f"that uid: it starts empty, while others find their state ({others}). If it had state "
        "before, give it the uid "
        "that it had."
    )


def _keyed_operators(job: JobGraph) -> list[OperatorInfo]:
    every = (one for vertex in job.vertices.values() for one in vertex.operators)
    return [one for one in every if one.keys is not None]


def named(uid: str, name: str) -> str:
    return f"operator '{name}' (uid '{uid}')"
