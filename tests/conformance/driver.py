"""Runs cases against the product: each area has an adapter that builds the real object."""

import importlib
import inspect
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.conformance.compare import NotCovered, differences
from tests.conformance.scheduler_areas import AREAS as SCHEDULER_AREAS

CLASSIC = "classic"
_BROKEN_ADAPTER = (AttributeError, NameError, ImportError)
ADAPTER_MODULES = (
    "tests.conformance.runtime_areas",
    "tests.conformance.output_areas",
    "tests.conformance.operator_areas",
    "tests.conformance.task_areas",
    "tests.conformance.input_areas",
    "tests.conformance.checkpoint_areas",
    "tests.conformance.barrier_area",
    "tests.conformance.sink_areas",
)


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_COVERED = "not covered"


@dataclass(frozen=True)
class Outcome:
    """`generations`: which of the answers of a case with variants the product gives."""

    case_id: str
    area: str
    verdict: Verdict
    text: str = ""
    generations: frozenset[str] | None = None


def load(path: str | Path) -> list[dict[str, Any]]:
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    return data["cases"] if isinstance(data, dict) else data


def adapters() -> dict[str, Callable[..., Any]]:
    """All adapters; a module that is not there leaves its areas uncovered."""
    found: dict[str, Callable[..., Any]] = dict(SCHEDULER_AREAS)
    for name in ADAPTER_MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            continue
        found.update(module.AREAS)
    return found


def run(cases: Iterable[dict[str, Any]], area: str | None = None) -> list[Outcome]:
    """One outcome per case. An area with variants must give one generation's answers throughout."""
    known = adapters()
    agreed: dict[str, frozenset[str]] = {}
    outcomes = []
    for case in cases:
        if area is not None and case["area"] != area:
            continue
        outcome = run_case(case, known)
        if outcome.generations is not None:
            common = agreed.get(outcome.area, outcome.generations) & outcome.generations
            agreed[outcome.area] = common
            if not common and outcome.verdict is Verdict.PASSED:
                text = "another generation's answer than the area's other cases"
                outcome = Outcome(outcome.case_id, outcome.area, Verdict.FAILED, text)
        outcomes.append(outcome)
    return outcomes


def run_case(case: dict[str, Any], known: dict[str, Callable[..., Any]] | None = None) -> Outcome:
    known = adapters() if known is None else known
    adapter = known.get(case["area"])
    if adapter is not None:
        with suppress(NotCovered):
            return _outcome(case, adapter)
    return Outcome(case["id"], case["area"], Verdict.NOT_COVERED)


def _outcome(case: dict[str, Any], adapter: Callable[..., Any]) -> Outcome:
    expect = case["expect"]
    variants = expect.get("variants") if isinstance(expect, dict) else None
    if not variants:
        text = _judge(adapter, case["given"], expect)
        verdict = Verdict.PASSED if text is None else Verdict.FAILED
        return Outcome(case["id"], case["area"], verdict, text or "")
    plain = {key: value for key, value in expect.items() if key != "variants"}
    answers = {CLASSIC: plain} | {
        name: plain | (value if isinstance(value, dict) else {next(iter(plain)): value})
        for name, value in variants.items()
    }
    texts = {name: _judge(adapter, case["given"], answer) for name, answer in answers.items()}
    matching = frozenset(name for name, text in texts.items() if text is None)
    verdict = Verdict.PASSED if matching else Verdict.FAILED
    return Outcome(case["id"], case["area"], verdict, texts[CLASSIC] or "", matching)


def _judge(
    adapter: Callable[..., Any], given: dict[str, Any], expect: dict[str, Any]
) -> str | None:
    """None where the adapter agrees. Adapters that take `expect` as well judge by themselves."""
    is_refusal = isinstance(expect, dict) and bool(expect.get("error")) and "error_on" not in expect
    try:
        if len(inspect.signature(adapter).parameters) > 1:
            verdict = adapter(given, expect)
            return verdict if isinstance(verdict, str) else None
        got = adapter(given)
    except NotCovered:
        raise
    except Exception as error:
        if is_refusal and not isinstance(error, _BROKEN_ADAPTER):
            return None
        return f"expected {expect!r}, got {type(error).__name__}: {error}"
    return differences(expect, got)
