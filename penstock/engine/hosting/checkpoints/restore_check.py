"""What becomes of each state of a savepoint if a program begins with it: `check_restore`. Runs no job.

Keys are judged as the JobManager judges them, and values as a task does. The operators with state are opened once in this
process, as copies, to see which states they declare. Source: Flink has no such command; its answers come when the tasks start
(StateAssignmentOperation, StateMigrationException).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.engine.hosting.checkpoints.reader import Savepoint
from penstock.engine.hosting.shipping.pickling import deserialize
from penstock.engine.machines.checkpoints.key_checks import (
    empty_start,
    finding,
    has_keyed,
    keys_of,
    kinds_of,
    verdict_on_keys,
)
from penstock.engine.machines.checkpoints.restore import (
    KEYS_NEXT_STEP,
    RestorePlan,
    adopt_max_parallelism,
    has_state,
)
from penstock.engine.model.checkpoints import CompletedCheckpoint, OperatorCheckpoint
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.chain import ChainSpec
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.engine.model.texts.type_texts import shown_type, type_with_defaults
from penstock.engine.runtime.state.broadcast import ROLE, broadcast_info
from penstock.engine.runtime.state.migration import change_of
from penstock.engine.runtime.state.snapshot import StateInfo
from penstock.engine.runtime.task.declared_states import DeclaredStates, declared_states

_ERROR_SHOWN: Final = 300
_USER_STATE: Final = "state/"
_MAY_MERGE: Final = (
    " If two keys become one by this, the restore is refused: this look does not read the state."
)
_VALUES_NEXT_STEP: Final = "Declare it as it was, or give the new state another name."
_UNCLAIMED_NEXT_STEP: Final = (
    "Give the operator its uid back, or drop its state with --allow-non-restored-state."
)


class Outcome(StrEnum):
    """What becomes of a state."""

    MAPS = "maps"
    MIGRATED = "is migrated"
    EMPTY = "starts empty"
    KEPT = "is kept unused"
    DROPPED = "is dropped"
    UNKNOWN = "is not known"
    REFUSED = "is refused"


@dataclass(frozen=True, slots=True)
class StateVerdict:
    """One state. `state`: its name; "keys": the keys of all keyed state; empty: all state of the operator. `former`,
    `present`: the types as the savepoint and the program have them; empty: there is none. `text`: why, and the next step.
    """

    operator: str
    uid: str
    state: str
    outcome: Outcome
    former: str = ""
    present: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RestoreFlags:
    """What the job allows. `ignores_unclaimed`: state without an operator is dropped. `allows_double`: integers may become
    DOUBLE. `opens`: operators are opened to see which states they declare.
    """

    ignores_unclaimed: bool = False
    allows_double: bool = False
    opens: bool = True


def is_refused(verdicts: Sequence[StateVerdict]) -> bool:
    """Whether the program could not begin with the savepoint."""
    return any(one.outcome is Outcome.REFUSED for one in verdicts)


def check_restore(
    job_graph: JobGraph, savepoint: Savepoint, flags: RestoreFlags
) -> list[StateVerdict]:
    """What becomes of each state: the operators of the program first, in their order, then those that it has not.

    Changes the max parallelism of the job graph as a restore does. Raises: CheckpointDamaged: a file is missing or damaged.
    """
    checkpoint = savepoint.checkpoint
    found: list[StateVerdict] = []
    trouble = _trouble(job_graph, checkpoint, flags)
    old = {one.uid: one for one in checkpoint.operators}
    for vertex in job_graph.vertices.values():
        for index, operator in enumerate(vertex.operators):
            if operator.uid in old:
                check = _OperatorCheck(savepoint, old[operator.uid], operator, flags)
                found += check.verdicts(job_graph, vertex, index)
            elif operator.keys is not None:
                found.append(_empty(operator, job_graph, checkpoint))
    known = {one.uid for vertex in job_graph.vertices.values() for one in vertex.operators}
    found += [
        _unclaimed(one, flags)
        for one in checkpoint.operators
        if one.uid not in known and has_state(one)
    ]
    if trouble and not is_refused(found):
        found.append(StateVerdict("", "", "", Outcome.REFUSED, text=trouble))
    return found


def _trouble(job_graph: JobGraph, checkpoint: CompletedCheckpoint, flags: RestoreFlags) -> str:
    """The first reason for which a JobManager would refuse the savepoint; empty: there is none."""
    try:
        adopt_max_parallelism(job_graph, checkpoint)
        RestorePlan(
            job_graph,
            checkpoint,
            is_unclaimed_state_ignored=flags.ignores_unclaimed,
            allows_double=flags.allows_double,
        )
    except ConfigurationError as error:
        return str(error)
    return ""


def _empty(
    operator: OperatorInfo, job_graph: JobGraph, checkpoint: CompletedCheckpoint
) -> StateVerdict:
    assert operator.keys is not None, "it has keyed state"
    others = finding(job_graph, checkpoint)
    text = f"warning: {empty_start(operator, job_graph, checkpoint)}" if others else ""
    present = f"keys {shown_type(operator.keys.type_info)}"
    return StateVerdict(operator.name, operator.uid, "", Outcome.EMPTY, "", present, text)


def _unclaimed(old: OperatorCheckpoint, flags: RestoreFlags) -> StateVerdict:
    keys = keys_of(old)
    former = f"keys {shown_type(keys.type_info)}" if keys is not None else ""
    if flags.ignores_unclaimed:
        return StateVerdict(
            old.name,
            old.uid,
            "",
            Outcome.DROPPED,
            former,
            text="no operator of the program has this uid.",
        )
    text = f"no operator of the program has this uid. {_UNCLAIMED_NEXT_STEP}"
    return StateVerdict(old.name, old.uid, "", Outcome.REFUSED, former, text=text)


class _OperatorCheck:
    """The states of one operator of both the savepoint and the program."""

    def __init__(
        self,
        savepoint: Savepoint,
        old: OperatorCheckpoint,
        operator: OperatorInfo,
        flags: RestoreFlags,
    ) -> None:
        self._checkpoint = savepoint.checkpoint
        self._old = old
        self._operator = operator
        self._flags = flags
        self._saved: Mapping[str, StateInfo]
        self._saved, self._filled = savepoint.state_infos(old)
        self._lists = {
            one.name: None if one.type_text is None else type_with_defaults(one.type_text)
            for state in old.subtasks
            if state
            for one in state.lists
        }

    def verdicts(
        self, job_graph: JobGraph, vertex: JobVertex, index: int
    ) -> Iterator[StateVerdict]:
        operator = self._operator
        if operator.keys is not None and has_keyed(self._old):
            yield self._of_keys(operator.keys)
        has_types = operator.keys is not None or any(name.startswith(ROLE) for name in self._lists)
        if not has_types:
            yield from (self._without_place(name, self._saved[name]) for name in self._filled)
            yield from (self._made(name, Outcome.MAPS) for name in self._lists)
            return
        if not self._flags.opens:
            yield from (
                self._made(name, Outcome.UNKNOWN, _shown(info), text="the operator was not opened.")
                for name, info in self._saved.items()
            )
            return
        try:
            declared = self._declared(job_graph, vertex, index)
        except Exception as error:
            # `open` of users may raise anything here, for example because a service is out of reach.
            text = (
                f"its states are not known, because opening it raised {type(error).__name__}: "
                f"{bounded_str(error, _ERROR_SHOWN)}. They are "
                "checked when the job starts."
            )
            yield self._made("", Outcome.UNKNOWN, text=text)
            return
        if declared.refusal:
            yield self._made("", Outcome.REFUSED, text=declared.refusal)
            return
        yield from self._of_states(declared)
        yield from self._of_lists(declared)

    def _declared(self, job_graph: JobGraph, vertex: JobVertex, index: int) -> DeclaredStates:
        assert vertex.chain_blob is not None, "every vertex of a streaming program has a chain"
        spec = deserialize(job_graph.blobs[vertex.chain_blob])
        assert isinstance(spec, ChainSpec), "the blob of a vertex is its chain"
        filled = {name: self._saved[name] for name in self._saved if name in self._filled}
        return declared_states(spec, index, vertex.max_parallelism, filled)

    def _of_keys(self, present: KeyType) -> StateVerdict:
        former = keys_of(self._old)
        verdict = verdict_on_keys(
            self._old, self._operator, self._checkpoint, allows_double=self._flags.allows_double
        )
        types = (
            shown_type(None if former is None else former.type_info),
            shown_type(present.type_info),
        )
        if verdict.refusal:
            text = f"{verdict.refusal}. {KEYS_NEXT_STEP}"
            return self._made("keys", Outcome.REFUSED, *types, text=text)
        migration = verdict.migration
        if migration is None:
            kinds = ", ".join(kinds_of(self._old))
            text = f"they are of class {kinds}; keys of another class are refused." if kinds else ""
            return self._made("keys", Outcome.MAPS, *types, text=text)
        if migration.former is None:
            text = "each key is checked against the declared type when it is read."
            return self._made("keys", Outcome.MAPS, *types, text=text)
        text = "; ".join(verdict.steps)
        if migration.is_rerouted:
            text += "; keys move to other key groups"
        change = migration.change
        warning = _MAY_MERGE if change.merges or change.merges_keys else ""
        return self._made("keys", Outcome.MIGRATED, *types, text=f"{text}.{warning}")

    def _of_states(self, declared: DeclaredStates) -> Iterator[StateVerdict]:
        for name, info in self._saved.items():
            present = declared.keyed.get(name)
            if present is not None:
                yield self._judged(name, info, present)
            elif name not in self._filled:
                continue
            elif any(role and name.startswith(role) for role in declared.roles):
                text = (
                    "open() declares no such state. It is kept, and used if the program declares "
                    "it later."
                )
                yield self._made(name, Outcome.KEPT, _shown(info), text=text)
            else:
                yield self._without_place(name, info)
        for name, info in declared.keyed.items():
            if name not in self._saved:
                yield self._made(name, Outcome.EMPTY, "", _shown(info))

    def _without_place(self, name: str, info: StateInfo) -> StateVerdict:
        text = (
            "it was written by an operator of another kind, and this one has no place for it. Make "
            "the operator what it was, or give it another uid and drop the state with "
            "--allow-non-restored-state."
        )
        return self._made(name, Outcome.REFUSED, _shown(info), text=text)

    def _of_lists(self, declared: DeclaredStates) -> Iterator[StateVerdict]:
        for name, type_info in self._lists.items():
            if name.startswith(ROLE) and name in declared.lists:
                present = broadcast_info(declared.lists[name])
                yield self._judged(name, broadcast_info(type_info), present)
            elif name.startswith(ROLE):
                text = "the program broadcasts no such state. It is kept."
                yield self._made(name, Outcome.KEPT, text=text)
            else:
                yield self._made(name, Outcome.MAPS)
        for name, type_info in declared.lists.items():
            if name not in self._lists:
                yield self._made(name, Outcome.EMPTY, "", _shown(broadcast_info(type_info)))

    def _judged(self, name: str, former: StateInfo, present: StateInfo) -> StateVerdict:
        change = change_of(former, present, allows_double=self._flags.allows_double)
        if not change.refusal and not change.steps:
            return self._made(name, Outcome.MAPS, _shown(present))
        types = _shown(former), _shown(present)
        if change.refusal:
            text = f"{change.refusal}. {_VALUES_NEXT_STEP}"
            return self._made(name, Outcome.REFUSED, *types, text=text)
        text = f"{'; '.join(change.steps)}.{_MAY_MERGE if change.merges_keys else ''}"
        return self._made(name, Outcome.MIGRATED, *types, text=text)

    def _made(
        self, state: str, outcome: Outcome, former: str = "", present: str = "", *, text: str = ""
    ) -> StateVerdict:
        shown = state.removeprefix(_USER_STATE)
        return StateVerdict(
            self._operator.name, self._operator.uid, shown, outcome, former, present, text
        )


def _shown(info: StateInfo) -> str:
    type_info = info.type_info
    shown = shown_type(type_info) if type_info is not None else info.type_text
    with_ttl = " with time to live" if info.has_ttl else ""
    return f"{info.kind} of {shown}{with_ttl}" if shown else f"{info.kind}{with_ttl}"
