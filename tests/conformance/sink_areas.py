"""Adapters of sink_committer, to the real bookkeeping, and of two_phase_commit, to the reference model."""

from typing import Any

from penstock.engine.runtime.checkpoint.two_phase_commit import CommitterState
from tests.conformance.two_phase_commit import TransactionState, TwoPhaseCommit

Given = dict[str, Any]


class _Log:
    """Transactions that are called txn1, txn2 and so on, and what became of them."""

    def __init__(self) -> None:
        self.begun = 0
        self.committed: list[str] = []
        self.aborted: list[str] = []

    def begin(self) -> str:
        self.begun += 1
        return f"txn{self.begun}"

    def pre_commit(self, transaction: str) -> None:
        assert transaction not in self.committed

    def commit(self, transaction: str) -> None:
        self.committed.append(transaction)

    def abort(self, transaction: str) -> None:
        self.aborted.append(transaction)


def two_phase_commit(given: Given) -> Given:
    log = _Log()
    sink = TwoPhaseCommit(log)
    states: dict[int, TransactionState[str]] = {}
    on_restore: list[str] = []
    for step in given["steps"]:
        word, _, rest = step.partition(" ")
        if word == "snapshot":
            states[int(rest)] = sink.snapshot(int(rest))
        elif word == "complete":
            sink.complete(int(rest))
        elif word == "restore":
            before = len(log.committed)
            sink = TwoPhaseCommit(log, [states[int(rest)]])
            on_restore += log.committed[before:]
        elif word not in {"write", "crash"}:  # those change nothing that is kept here
            raise ValueError(f"unknown step {step!r}")
    return {
        "committed": log.committed,
        "committed_on_restore": on_restore,
        "aborted": log.aborted,
        "open": sink.open,
    }


def sink_committer(given: Given, expect: Given) -> str | None:
    """A step that commits nothing may be left out of `committed_after`."""
    puts_off = given.get("retry_later", False)
    state = CommitterState(lambda committables: committables if puts_off else None)
    committed: dict[str, list[int]] = {}
    steps = given.get("steps") or ["committables ckpt 1", "complete 1"]
    for number, step in enumerate(steps, 1):
        words = step.split()
        checkpoint_id = int(words[-1])
        if words[0] == "committables":
            state.add(checkpoint_id, [step])
            state.expect(checkpoint_id, 1)
        elif words[0] == "complete":
            committed[str(number)] = state.complete(checkpoint_id)
        else:
            raise ValueError(f"unknown step {step!r}")
    got = {"committed_after": committed, "retry_after_ms": state.retry_after_ms}
    wanted = expect.get("committed_after", committed)
    is_same = all(
        committed.get(number, []) == wanted.get(number, []) for number in committed | wanted
    )
    if is_same and expect.get("retry_after_ms", state.retry_after_ms) == state.retry_after_ms:
        return None
    return f"expected {expect!r}, got {got!r}"


AREAS = {"two_phase_commit": two_phase_commit, "sink_committer": sink_committer}
