"""Adapters of a task's own areas: mailbox, input selection, life, submission, slots."""

import re
from collections.abc import Callable
from typing import Any

from penstock.engine.machines.taskmanager.task_executor import TaskExecutor, TaskSlot
from penstock.engine.machines.taskmanager.task_lifecycle import (
    CancellationSchedule,
    CancelStep,
    TaskLifecycle,
    refusal_of_checkpoint,
)
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.errors import ExternalError, IllegalTransition
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    BlobKey,
    ExecutionVertexId,
    FencingToken,
    JobId,
    ResourceId,
    VertexId,
)
from penstock.engine.model.messages import (
    AnswerOffers,
    DeployTask,
    FreeSlot,
    RegistrationAccepted,
    RequestSlot,
    SlotFreed,
    SlotTimedOut,
    StartTask,
    StopTask,
    TaskEnded,
    TaskManagerEffect,
    TaskStateChanged,
)
from penstock.engine.model.states import ExecutionState, SlotState
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.task.input_processor import (
    ALL,
    InputSelectionHandler,
    InputStatus,
    StreamMultipleInputProcessor,
    next_move,
    select_next,
)
from penstock.engine.runtime.task.mailbox import (
    MIN_PRIORITY,
    Mail,
    MailboxClosed,
    MailboxProcessor,
    TaskMailbox,
)
from tests.conformance.compare import differences
from tests.tools.runtime.mailboxes import Threads

Given = dict[str, Any]
_ME, _TOKEN = ResourceId("tm"), FencingToken("now")


# ---------------------------------------------------------------------- mailbox


def mailbox(given: Given) -> Given:
    threads = Threads()
    box = threads.mailbox()
    return {"results": [_mailbox_op(threads, box, op) for op in given["ops"]]}


def _mailbox_op(threads: Threads, box: TaskMailbox, op: Given) -> Any:
    try:
        return _mailbox_answer(threads, box, op)
    except MailboxClosed:
        return {"error": "mailbox_closed"}


def _mailbox_answer(threads: Threads, box: TaskMailbox, op: Given) -> Any:
    word = op["op"]
    if word in {"put", "put_first", "put_first_from_other_thread"}:
        sent = Mail(lambda: None, op.get("priority", MIN_PRIORITY), op["mail"])
        if word == "put_first_from_other_thread":
            with threads.elsewhere():
                box.put_first(sent)
        else:
            (box.put if word == "put" else box.put_first)(sent)
        return "ok"
    if word == "try_take":
        return _name(box.try_take(op.get("priority", MIN_PRIORITY)))
    if word == "quiesce":
        box.quiesce()
        return str(box.state)
    if word in {"has_mail", "size"}:
        return getattr(box, word)
    answer = getattr(box, word)()
    if word in {"drain", "close"}:
        return [_name(mail) for mail in answer]
    return answer if word == "create_batch" else _name(answer)


def _name(mail: Mail | None) -> str | None:
    return None if mail is None else mail.description


def mailbox_loop(given: Given, expect: Given) -> str | None:
    if given.get("suspend_twice_without_resume"):
        return _refusal(_suspend_twice, expect)
    if "yield_priority" in given:
        return differences(expect, _yields(given))
    loop = _Loop(given)
    loop.processor.run_mailbox_loop()
    never_run = [mail.description for mail in loop.processor.mailbox.drain()]
    order = loop.log
    if "default" in expect.get("order", ()):  # without numbers
        order = ["default" if name.startswith("default") else name for name in order]
    return differences(expect, {"order": order, "never_run": never_run})


def _refusal(action: Callable[[], object], expect: Given) -> str | None:
    try:
        action()
    except Exception:
        return None if expect.get("error") else "refused"
    return f"expected {expect!r}, got no refusal"


def _suspend_twice() -> None:
    processor = Threads().processor()
    processor.suspend_default_action()
    processor.suspend_default_action()


def _yields(given: Given) -> Given:
    log: list[str] = []
    processor = Threads().processor()
    for name, priority in given["mails"]:
        processor.mailbox.put(Mail(lambda name=name: log.append(name), priority, name))
    while processor.try_yield(given["yield_priority"]):
        pass
    return {
        "yield_order": log,
        "left": [mail.description for mail in processor.mailbox.drain()],
    }


class _Loop:
    """A processor whose default action and mails do what a case says in words."""

    def __init__(self, given: Given) -> None:
        self.log: list[str] = []
        self.runs = 0
        self.suspension: Any = None
        self.given = given
        self.processor = Threads().processor(self.default_action)
        for name in given.get("queue_at_start", ()):
            self.put(name)

    def put(self, name: str) -> None:
        self.processor.mailbox.put(Mail(lambda: self.run_mail(name), MIN_PRIORITY, name))

    def run_mail(self, name: str) -> None:
        script = self.given.get(name)
        if script is None or "logs" in script:
            self.log.append(name)
        for put in self.given.get(f"{name}_puts", ()):
            self.put(put)
        if script is not None:
            self.act(script)

    def default_action(self, _processor: MailboxProcessor) -> None:
        self.runs += 1
        self.log.append(f"default{self.runs}")
        for clause in self.given["default_action"].split(";"):
            found = re.search(r"run (\d+)", clause)
            number = int(found[1]) if found else {"second": 2, "third": 3}.get(clause.split()[0], 1)
            if number == self.runs:
                self.act(clause)

    def act(self, script: str) -> None:
        for step in re.split(r",| and ", script):
            if "suspends" in step:
                self.suspension = self.processor.suspend_default_action()
            elif "resume" in step:
                self.suspension.resume()
            elif "all actions completed" in step:
                self.processor.all_actions_completed()
            elif found := re.search(r"puts (?:mail )?(\w+)", step):
                self.put(found[1])


def process_input(given: Given) -> Given:
    return {
        "result": [
            str(next_move(InputStatus(row["status"]), is_output_available=row["output_available"]))
            for row in given["rows"]
        ]
    }


# ---------------------------------------------------------------------- input selection


class _Endless:
    """An input that always has a record, or one that has ended."""

    def __init__(self, *, is_finished: bool) -> None:
        self.is_finished = is_finished
        self.is_available = not is_finished
        self.records_in = 0

    def poll(self) -> Any:
        return () if self.is_finished else (RowBatch([0]),)


def input_selection(given: Given, expect: Given) -> str | None:
    if "rows" in given:
        chosen = [select_next(r["selected"], r["available"], r["last"]) for r in given["rows"]]
        return differences(expect, {"next": chosen})
    selection = _selection(given.get("selection", "ALL"))
    ended = {0: given.get("first_finished"), 1: given.get("second_finished")}
    if "reads" not in given:
        return _refusal(lambda: _with_ended(given, selection, ended), expect)
    inputs = [_Endless(is_finished=bool(ended.get(i))) for i in range(given["inputs"])]
    processor = StreamMultipleInputProcessor(
        inputs, None if selection == ALL else lambda: selection
    )
    order = [polled[0] for _ in range(given["reads"]) if (polled := processor.poll())]
    return differences(expect, {"read_order": order})


def _selection(text: Any) -> int:
    if isinstance(text, int):
        return text
    return {"ALL": ALL, "FIRST": 1, "SECOND": 2}[str(text).split()[0].upper()]


def _with_ended(given: Given, selection: int, ended: dict[int, Any]) -> None:
    handler = InputSelectionHandler(given["inputs"], lambda: selection)
    handler.start()
    for index, has_ended in ended.items():
        if has_ended:
            handler.was_read(index, InputStatus.END_OF_DATA)
            handler.was_read(index, InputStatus.END_OF_INPUT)


# ---------------------------------------------------------------------- life of a task


def task_state(given: Given) -> Given:
    if "cancellation" in given:
        return _cancellation(given["cancellation"])
    if "checkpoint_trigger_in_state" in given:
        states = given["checkpoint_trigger_in_state"]
        refusals = [refusal_of_checkpoint(ExecutionState(s)) for s in states]
        return {"declined": [None if one is None else str(one) for one in refusals]}
    results, starts = [], []
    for state, event in given["rows"]:
        life = TaskLifecycle(ExecutionState(state))
        if event in {"cancel", "fail"}:
            starts.append(getattr(life, event)())
        else:
            life.ended_with(is_cancel_signal="cancel" in event)
        results.append(str(life.state))
    return {"result": results, "starts_canceler": starts}


def _cancellation(times: Given) -> Given:
    interval_ms = int(times.get("interval_s", 30) * 1000)
    timeout_ms = int(times.get("timeout_s", 180) * 1000)
    schedule = CancellationSchedule(0, interval_ms, timeout_ms)
    interrupts: list[int | float] = []
    fatal: int | float | None = None
    end_ms = timeout_ms or 10 * interval_ms
    while fatal is None and schedule.next_ms <= end_ms:
        now = schedule.next_ms
        seconds = now / 1000
        at = int(seconds) if seconds.is_integer() else seconds
        for step in schedule.due(now):
            if step is CancelStep.FATAL:
                fatal = at
            else:
                interrupts.append(at)
    return {
        "interrupts_at_s": interrupts,
        "fatal_at_s": fatal,
        "watchdog": schedule.fatal_at_ms is not None,
    }


def submit_task(given: Given) -> Given:
    accepted = []
    state = None
    for row in given["rows"]:
        is_taken, state = _submission(row)
        accepted.append(is_taken)
    return {"accepted": accepted, "slot_state_after_last": None if state is None else str(state)}


def _submission(row: str) -> tuple[bool, SlotState | None]:
    slots = _Slots(1)
    job, allocation = JobId("job"), AllocationId("a1")
    if "no job connection" not in row:  # asked for, and refused: there is one slot
        slots.request(7, job, AllocationId("a0"))
    if "slot missing" not in row:
        owner = JobId("other") if "another job" in row or "other job" in row else job
        if "no job connection" in row:
            owner = JobId("other")
        slots.request(0, owner, allocation)
    if "active" in row or "duplicate" in row:
        slots.accept(allocation)
    if "duplicate" in row:
        slots.deploy(job, allocation, "t1")
    if "releas" in row:
        slots.deploy(job, allocation, "other")
        slots.free(allocation)
    token = FencingToken("former") if "wrong fencing" in row else _TOKEN
    effects = slots.deploy(job, allocation, "t1", token)
    slot = slots.executor.slots.slot(allocation)
    is_taken = any(isinstance(effect, StartTask) for effect in effects)
    return is_taken, None if slot is None else slot.state


class _Slots:
    """The TaskManager's machine, told what its JobManager would say."""

    def __init__(self, slots: int) -> None:
        self.executor = TaskExecutor(_ME, slots)
        self.executor.step(RegistrationAccepted(_TOKEN))

    def request(self, index: int, job: JobId, allocation: AllocationId) -> None:
        self.executor.step(RequestSlot(_ME, index, allocation, job, _TOKEN))

    def accept(self, allocation: AllocationId) -> None:
        self.executor.step(AnswerOffers(_ME, (allocation,), (), _TOKEN))

    def free(self, allocation: AllocationId) -> list[TaskManagerEffect]:
        return self.executor.step(FreeSlot(_ME, allocation, "a test", _TOKEN))

    def deploy(
        self, job: JobId, allocation: AllocationId, name: str, token: FencingToken = _TOKEN
    ) -> list[TaskManagerEffect]:
        deployment = TaskDeployment(
            job, "a job", _attempt(name), allocation, name, 1, 1, BlobKey("b"), (), ()
        )
        return self.executor.step(DeployTask(_ME, deployment, token))


def _attempt(name: str) -> AttemptId:
    return AttemptId(ExecutionVertexId(VertexId(name), 0), 0)


# ---------------------------------------------------------------------- slots


def slot_table(given: Given, expect: Given) -> str | None:
    table = _Table(given.get("slots", 1))
    wanted = expect.get("results", ())
    for place, op in enumerate(given["ops"]):
        try:
            got = table.run(op)
        except (ExternalError, IllegalTransition) as error:
            if expect.get("error_on") == place + 1:
                return None if _same_kind(expect.get("kind"), str(error)) else str(error)
            return f"op {place + 1} ({op}): {error}"
        if expect.get("error_on") == place + 1 and got & _REFUSALS:
            return None
        if place < len(wanted) and not _means(wanted[place], got):
            return f"op {place + 1} ({op}): expected {wanted[place]!r}, got {got!r}"
    return None if "error_on" not in expect else f"expected an error on op {expect['error_on']}"


_REFUSALS = {"not found", "refused"}


def _same_kind(kind: str | None, text: str) -> bool:
    return kind is None or all(
        word in text.lower() for word in kind.lower().split() if word != "not"
    )


def _means(wanted: Any, got: set[Any]) -> bool:
    """Whether an answer in words says nothing that is not so: each of its parts is one of ours."""
    if isinstance(wanted, bool):
        return wanted in got
    parts = [part.strip() for part in str(wanted).split(",")]
    return all(part in got for part in parts)


class _Table:
    """Runs ops in words on the real machine; answers with all that may be said of what happened."""

    def __init__(self, slots: int) -> None:
        self.slots = _Slots(slots)
        self.allocation = AllocationId("a1")
        self.job = JobId("A")
        self.slots.request(slots, self.job, AllocationId("none"))  # it is known, and has no slot

    def run(self, op: str) -> set[Any]:
        words = op.split()
        named = next((w for w in words[1:] if re.fullmatch(r"[a-z]\d+", w)), None)
        if op.startswith("add task"):
            return self.add(named or "t0")
        if "terminates" in op or "ends" in op:
            return self.ended(words[0])
        if named is not None:
            self.allocation = AllocationId(named)
        return getattr(self, words[0])(op)

    def _slot(self) -> TaskSlot | None:
        return self.slots.executor.slots.slot(self.allocation)

    def allocate(self, op: str) -> set[Any]:
        found = re.search(r"idx(-?\d+)", op)
        job = re.search(r"job(\w+)", op)
        index, self.job = int(found[1]) if found else 0, JobId(job[1] if job else "A")
        self.slots.request(index, self.job, self.allocation)
        slot = self._slot()
        is_given = slot is not None and slot.job_id == self.job and slot.index == index
        return {is_given, "ok" if is_given else "refused"}

    def mark_active(self, _op: str) -> set[Any]:
        self.slots.accept(self.allocation)
        slot = self._slot()
        is_done = slot is not None and slot.state is SlotState.ACTIVE
        return {is_done, "ok" if is_done else "refused"}

    def timeout(self, _op: str) -> set[Any]:
        effects = self.slots.executor.step(SlotTimedOut(self.allocation))
        return {"slot freed", "freed", "timed out"} if effects else {"ignored"}

    def free(self, _op: str) -> set[Any]:
        effects = self.slots.free(self.allocation)
        freed = [effect for effect in effects if isinstance(effect, SlotFreed)]
        if freed:
            (one,) = freed
            return {f"index {one.slot_index}", one.slot_index, "slot free", "ok"}
        slot = self._slot()
        if slot is None:
            return {"not found", "unknown", "slot not found"}
        told = {"not yet (-1)", "not yet", -1, "-1", f"state {slot.state}", str(slot.state)}
        stopped = [effect for effect in effects if isinstance(effect, StopTask)]
        return told | {f"{stop.attempt_id.vertex_id} failed" for stop in stopped}

    def add(self, name: str) -> set[Any]:
        """A task that is submitted makes its slot active; one that is only added, or added twice, is the slot's matter."""
        slot = self._slot()
        if slot is not None and (
            slot.state is SlotState.ALLOCATED or _attempt(name) in slot.attempts
        ):
            slot.add(_attempt(name))
        effects = self.slots.deploy(self.job, self.allocation, name)
        for effect in effects:
            if isinstance(effect, TaskStateChanged):
                assert effect.failure is not None
                raise ExternalError(effect.failure.text)
        return {"ok", True}

    def ended(self, name: str) -> set[Any]:
        effects = self.slots.executor.step(TaskEnded(_attempt(name)))
        is_freed = any(isinstance(effect, SlotFreed) for effect in effects)
        return {"slot free", "freed"} if is_freed else {"ok", "slot stays"}


AREAS: dict[str, Callable[..., Any]] = {
    "mailbox": mailbox,
    "mailbox_loop": mailbox_loop,
    "process_input": process_input,
    "input_selection": input_selection,
    "task_state": task_state,
    "submit_task": submit_task,
    "slot_table": slot_table,
}
