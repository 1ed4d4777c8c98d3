"""Reasons in plain words, with the numbers that led to them. Source: none in Flink, whose events name classes of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.engine.model.texts.amounts import counted
from penstock.ops.autoscaler.rules.evaluation import Evaluated
from penstock.ops.autoscaler.rules.history import FormerRescale
from penstock.ops.autoscaler.rules.parallelism import Proposal
from penstock.ops.autoscaler.rules.settings import CapacitySettings


def of_change(
    name: str, one: Evaluated, proposal: Proposal, after: int, settings: CapacitySettings
) -> str:
    """Return why a vertex gets another parallelism."""
    now = one.parallelism
    verb = "grows" if after > now else "shrinks"
    does = f"{name} {verb} from {now} to {after}: at full load it {_can(one)}"
    wanted = [f"{rate(one.target_rate)} that arrive at {settings.utilization:.0%} utilization"]
    if one.catch_up_rate > 0:
        time = duration(settings.catch_up_s)
        wanted.append(f"{rate(one.catch_up_rate)} to work off what waits within {time}")
    parts = [f"{does}, and should do {rate(one.capacity)}, for {' and '.join(wanted)}"]
    if proposal.parallelism != proposal.wanted and after == proposal.parallelism:
        parts.append(f"; {proposal.wanted} became {after} to spread the load evenly")
    if after not in {proposal.parallelism, now}:
        parts.append(f"; {after} is the most that was asked for while the scale-down waited")
    if not one.is_outside:
        parts.append("; it is within its bounds and goes along with other vertices")
    return "".join(parts)


def of_ineffective(name: str, last: FormerRescale, gain_min: float) -> str:
    """Return which increase has not helped."""
    return (
        f"{name} grew from {last.before} to {last.after} to do {rate(last.expected_rate)} in place "
        f"of {rate(last.rate)}, and does {rate(last.best_rate or 0.0)}: {max(0.0, last.gain):.0%} "
        f"of the gain, where at least {gain_min:.0%} is asked for. Look for skewed keys, or for a "
        "limit outside of the job."
    )


def of_blocked(name: str, wanted: int, streak: Sequence[FormerRescale]) -> str:
    """Return why a vertex does not grow further."""
    newest = streak[0]
    return (
        f"{name} stays at {newest.after} and does not grow to {wanted}: "
        f"{counted(len(streak), 'increase')} in a row, from {streak[-1].before} to {newest.after}, "
        "did not help."
    )


def rate(value: float) -> str:
    """`8,421/s`."""
    return "any rate" if math.isinf(value) else f"{value:,.0f}/s"


def duration(seconds: float) -> str:
    """`10 min`, `90 s`."""
    minutes = seconds / 60
    return f"{minutes:g} min" if minutes >= 2 else f"{seconds:g} s"


def _can(one: Evaluated) -> str:
    if math.isinf(one.true_rate):
        return "has nothing to do"
    how = "has shown" if one.is_observed else "can do"
    return f"{how} {rate(one.true_rate)}"
