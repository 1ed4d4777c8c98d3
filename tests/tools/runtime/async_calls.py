"""AsyncCalls that tests answer by hand."""

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.operator import Outcome
from penstock.engine.runtime.operators import AsyncSettings, AsyncWaitOperator
from tests.tools.runtime.operator_harness import OperatorHarness


class FakeCalls:
    """`running`: number -> value of calls that were started and not answered."""

    def __init__(self) -> None:
        self.running: dict[int, object] = {}
        self.submits: list[list] = []
        self.cancelled: list[int] = []
        self.is_closed = False

    def open(self, function, on_outcomes, capacity):
        self.on_outcomes = on_outcomes
        self.capacity = capacity

    def submit(self, calls):
        self.submits.append([value for _, value in calls])
        assert not self.running.keys() & dict(calls).keys(), "a record runs twice at once"
        self.running.update(calls)

    def cancel(self, number):
        self.cancelled.append(self.running.pop(number, None))

    def close(self):
        self.is_closed = True

    def number_of(self, value):
        return next(number for number, one in self.running.items() if one == value)


class AsyncHarness(OperatorHarness):
    """`answer` and `fail` end calls by value and run the mail and the timer that follow."""

    def __init__(
        self, *, ordered=True, timeout=100, capacity=4, retry=None, owner=None, state=None
    ):
        self.calls = FakeCalls()
        settings = AsyncSettings(timeout, capacity, is_ordered=ordered)
        operator = AsyncWaitOperator(UserFunction(_never_called, owner), settings, retry)
        if state is not None:
            operator.restore(state)
        super().__init__(operator, async_calls=self.calls)
        self.ring()

    def answer(self, *values, results=None):
        outcomes = []
        for value in values:
            number = self.calls.number_of(value)
            del self.calls.running[number]
            outcomes.append(Outcome(number, [f"{value}!"] if results is None else results))
        self.calls.on_outcomes(outcomes)
        return self.ring()

    def fail(self, value, error):
        number = self.calls.number_of(value)
        del self.calls.running[number]
        self.calls.on_outcomes([Outcome(number, error=error)])
        return self.ring()

    def ring(self):
        return self.advance(self.timers.now)


def _never_called(value):
    raise AssertionError(f"called with {value} on the mailbox thread")
