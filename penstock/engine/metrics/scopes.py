"""Where a metric belongs, and the three ways in which Flink names it: identifier, logical scope with variables, query id.

Does not know values. Source: Flink ScopeFormats, ScopeFormat, QueryScopeInfo, AbstractMetricGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.metrics import Groups
from penstock.engine.model.options.option import Option
from penstock.engine.model.options.task import ScopeOptions

DEFAULT_DELIMITER: Final = "."
MOST_OF_OPERATOR_NAME: Final = 80
_PARENT: Final = "*"
_ENDINGS: Final = (": Writer", ": Committer")
_QUERY_NAME: Final = str.maketrans(dict.fromkeys(" .:,", "_"))


class Component(StrEnum):
    """What a metric is of. The value is the logical scope."""

    JOBMANAGER = "jobmanager"
    JM_JOB = "jobmanager.job"
    JM_OPERATOR = "jobmanager.job.operator"
    TASKMANAGER = "taskmanager"
    TM_JOB = "taskmanager.job"
    TASK = "taskmanager.job.task"
    OPERATOR = "taskmanager.job.task.operator"

    @property
    def parent(self) -> Component | None:
        """The component around it; None for a process."""
        above, dot, _ = self.value.rpartition(".")
        return Component(above) if dot else None


FORMATS: Final[Mapping[Component, Option[str]]] = {
    Component.JOBMANAGER: ScopeOptions.JOBMANAGER,
    Component.JM_JOB: ScopeOptions.JM_JOB,
    Component.JM_OPERATOR: ScopeOptions.JM_OPERATOR,
    Component.TASKMANAGER: ScopeOptions.TASKMANAGER,
    Component.TM_JOB: ScopeOptions.TM_JOB,
    Component.TASK: ScopeOptions.TASK,
    Component.OPERATOR: ScopeOptions.OPERATOR,
}
"""The option with the format of each component."""
DEFAULT_FORMATS: Final[Mapping[Component, str]] = {
    component: option.default or "" for component, option in FORMATS.items()
}
_VARIABLES: Final[Mapping[Component, tuple[str, ...]]] = {
    Component.JOBMANAGER: ("host",),
    Component.JM_JOB: ("job_id", "job_name"),
    Component.JM_OPERATOR: ("task_id", "task_name", "operator_id", "operator_name"),
    Component.TASKMANAGER: ("host", "tm_id"),
    Component.TM_JOB: ("job_id", "job_name"),
    Component.TASK: (
        "task_id", "task_name", "task_attempt_id", "task_attempt_num", "subtask_index",
    ),
    Component.OPERATOR: ("operator_id", "operator_name"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One component with its variables, without brackets: `host`, `tm_id`, `job_id`, `task_id` (the vertex), and so on."""

    component: Component
    variables: Mapping[str, str]


def variables_of(component: Component) -> tuple[str, ...]:
    """The names of the variables that a component has, those of its ancestors first."""
    parent = component.parent
    above = () if parent is None else variables_of(parent)
    return above + _VARIABLES[component]


class ScopeFormats:
    """How identifiers are built: one format for each component."""

    def __init__(self, formats: Mapping[Component, str] = DEFAULT_FORMATS) -> None:
        """Raises: ValueError: the format of a process begins with `*`, but there is nothing around it."""
        given = {**DEFAULT_FORMATS, **formats}
        self._parts = {component: _parts(component, given) for component in Component}

    def of(self, place: Place) -> tuple[str, ...]:
        """The components of a place's identifier. A variable without a value is `null`; an unknown one stays as it is."""
        known = variables_of(place.component)
        return tuple(_filled(part, known, place) for part in self._parts[place.component])


def scope_formats(settings: Settings) -> tuple[ScopeFormats, str | None]:
    """The formats of a configuration, and what is wrong with them; None: nothing.

    If one cannot be used, all have their defaults, as in Flink.
    """
    formats = {component: settings.get(option) for component, option in FORMATS.items()}
    try:
        return ScopeFormats(formats), None
    except ValueError as error:
        return ScopeFormats(), f"{error}. All metrics.scope.* options have their defaults now."


def delimiter_of(settings: Settings) -> str:
    """The character between the parts of an identifier."""
    return settings.get(ScopeOptions.DELIMITER)[:1] or DEFAULT_DELIMITER


def identifier(
    place: Place,
    groups: Groups,
    name: str,
    formats: ScopeFormats,
    delimiter: str = DEFAULT_DELIMITER,
) -> str:
    """The name of a metric for reporters without tags: scope, groups, name. `delimiter`: one character."""
    parts = [*formats.of(place), *flat(groups)]
    return delimiter.join([*(_without(part, delimiter) for part in parts), name])


def logical_scope(component: Component, groups: Groups, delimiter: str = DEFAULT_DELIMITER) -> str:
    """The component's words and the groups. Of a key/value group only the key."""
    words = [*component.value.split("."), *(key for key, _ in groups)]
    return delimiter.join(_without(word, delimiter) for word in words)


def user_variables(groups: Groups) -> dict[str, str]:
    """The variables that key/value groups add, without brackets."""
    return {key: value for key, value in groups if value is not None}


def query_id(groups: Groups, name: str, operator: str = "") -> str:
    """The name of a metric in REST, below a subtask, a process or a job. `operator`: of an operator's metric, else empty."""
    words = [operator_name(operator)] if operator else []
    return ".".join(query_name(word) for word in (*words, *flat(groups), name))


def query_name(text: str) -> str:
    """A group, an operator or a metric as part of a REST id."""
    return text.translate(_QUERY_NAME)


def operator_name(name: str) -> str:
    """The name of an operator as metrics show it: at most 80 characters. `: Writer` and `: Committer` at its end stay."""
    if len(name) <= MOST_OF_OPERATOR_NAME:
        return name
    ending = next((one for one in _ENDINGS if name.endswith(one)), "")
    return name[: MOST_OF_OPERATOR_NAME - len(ending)] + ending


def flat(groups: Groups) -> list[str]:
    """The groups one by one; a key/value group is two."""
    return [word for pair in groups for word in pair if word is not None]


def _parts(component: Component, formats: Mapping[Component, str]) -> tuple[str, ...]:
    parts = tuple(formats[component].split("."))
    if parts[0] != _PARENT:
        return parts
    parent = component.parent
    if parent is None:
        raise ValueError(
            f"{FORMATS[component].key} is {formats[component]!r}, which begins with the format "
            "around it, but there is none: write the whole format"
        )
    return _parts(parent, formats) + parts[1:]


def _filled(part: str, known: tuple[str, ...], place: Place) -> str:
    name = part[1:-1]
    if not (part.startswith("<") and part.endswith(">")) or name not in known:
        return part
    return _shown(name, place.variables.get(name)) or "null"


def _shown(name: str, value: str | None) -> str | None:
    return operator_name(value) if name == "operator_name" and value else value


def _without(part: str, delimiter: str) -> str:
    return part.replace(delimiter, "-" if delimiter == "_" else "_")
