"""Whether the keys of a checkpoint's state are those of the program, and what attempts do to them if they are not.

Knows types, no state. Source: Flink StateAssignmentOperation, StateMigrationException ("the new key serializer must be
compatible"); differs: it is found when the job is submitted, and keys that can be converted are.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.model.completed_checkpoint import CompletedCheckpoint, OperatorCheckpoint
from penstock.model.graph.job_graph import JobGraph, OperatorInfo
from penstock.model.key_types import KeyMigration, KeyType, KeyVerdict, judge_keys


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
            f"its keys belong to other key groups now ({'; '.join(verdict.steps)}), but the checkpoint has data in flight, which "
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


def has_keyed(old: OperatorCheckpoint) -> bool:
    return any(state is not None and (state.keyed or state.databases) for state in old.subtasks)


def is_in_flight(checkpoint: CompletedCheckpoint) -> bool:
    """Whether the checkpoint has data that was sent and not processed."""
    states = (state for old in checkpoint.operators for state in old.subtasks if state is not None)
    return any(state.inputs_in_flight or state.outputs_in_flight for state in states)


def without_their_state(job: JobGraph, checkpoint: CompletedCheckpoint) -> list[OperatorInfo]:
    """Operators with keyed state that find none, although others of the job find theirs."""
    old = {one.uid: one for one in checkpoint.operators}
    keyed = [
        operator
        for vertex in job.vertices.values()
        for operator in vertex.operators
        if operator.keys is not None
    ]
    if not any(one.uid in old and has_keyed(old[one.uid]) for one in keyed):
        return []
    return [one for one in keyed if one.uid not in old]


def named(uid: str, name: str) -> str:
    return f"operator '{name}' (uid '{uid}')"
