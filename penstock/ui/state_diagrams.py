"""Draw the state machines from their tables: `python -m penstock.ui.state_diagrams` writes docs/state-machines.md.

The diagrams are Mermaid, which GitHub and most editors show as pictures.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.machines.execution import execution
from penstock.machines.execution.execution import Consequence
from penstock.machines.job import job_status
from penstock.machines.taskmanager import task_slots
from penstock.machines.taskmanager.task_slots import SlotConsequence
from penstock.model.states import ExecutionState, JobStatus, SlotState

TARGET: Final = Path(__file__).parents[2] / "docs" / "state-machines.md"
DRAWN_BY: Final = (
    "Drawn by `python -m penstock.ui.state_diagrams` from `penstock/machines/job/job_status.py`, "
    "`penstock/machines/execution/execution.py` and `penstock/machines/taskmanager/task_slots.py`; a test holds that they are up to date."
)
TERMINAL: Final = (
    "FINISHED, CANCELED and FAILED are globally terminal: everything is cleaned up. SUSPENDED is locally "
    "terminal: another driver may take the job over. RECONCILING is Flink's; nothing leads to it."
)
SLOT: Final = (
    "The life of one allocation. One that is FREE again never comes back: the place gets another allocation. "
    "After a slash: what the TaskManager does."
)
State = JobStatus | ExecutionState | SlotState
Arrows = dict[tuple[State, State], list[str]]


def job_arrows() -> Arrows:
    arrows: Arrows = defaultdict(list)
    for (state, event), following in job_status.TABLE.items():
        arrows[state, following].append(event.lower())
    return arrows


def execution_arrows() -> Arrows:
    """A consequence stands behind its event; reports that surprise change no state and are left out."""
    arrows: Arrows = defaultdict(list)
    for (state, event), (following, consequence) in execution.TABLE.items():
        if following is state:
            continue
        said = "" if consequence is Consequence.NONE else f" / {consequence.lower()}"
        arrows[state, following].append(event.lower() + said)
    return arrows


def slot_arrows() -> Arrows:
    """As `execution_arrows`; a square that keeps its state is drawn where something follows from it."""
    arrows: Arrows = defaultdict(list)
    for (state, event), (following, consequence) in task_slots.TABLE.items():
        said = "" if consequence is SlotConsequence.NONE else f" / {consequence.lower()}"
        arrows[state, following].append(event.lower() + said)
    return arrows


def mermaid(
    start: State, ends: Iterable[State], arrows: Mapping[tuple[State, State], list[str]]
) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}"]
    lines += [
        f"    {state} --> {following}: {', '.join(events)}"
        for (state, following), events in arrows.items()
    ]
    lines += [f"    {end} --> [*]" for end in ends]
    return "\n".join([*lines, "```"])


def table(rows: Iterable[tuple[State, str]]) -> str:
    """What changes nothing, state by state."""
    by_state: dict[State, list[str]] = defaultdict(list)
    for state, event in rows:
        by_state[state].append(event.lower())
    lines = ["| state | events |", "|---|---|"]
    lines += [f"| {state} | {', '.join(sorted(by_state[state]))} |" for state in sorted(by_state)]
    return "\n".join(lines)


def surprises() -> Iterable[tuple[State, str]]:
    for (state, event), (following, consequence) in execution.TABLE.items():
        if following is state:
            yield state, f"{event} / {consequence}"


def document() -> str:
    job_ends = [status for status in JobStatus if status.is_terminal]
    task_ends = [state for state in ExecutionState if state.is_terminal]
    parts = [
        "# State machines",
        DRAWN_BY,
        "## Job",
        TERMINAL,
        mermaid(JobStatus.INITIALIZING, job_ends, job_arrows()),
        "Asked for too late, or twice; these change nothing:",
        table(job_status.IGNORED),
        "## Attempt of a task",
        "After a slash: what the JobMaster does beside taking the new state.",
        mermaid(ExecutionState.CREATED, task_ends, execution_arrows()),
        "Reports that surprise; the state stays until the consequence is carried out:",
        table(surprises()),
        "Right when sent, late when read; these change nothing:",
        table(execution.STALE),
        "## Slot of a TaskManager",
        SLOT,
        mermaid(SlotState.FREE, [], slot_arrows()),
        "Right when sent, late when read; these change nothing:",
        table(task_slots.STALE),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
