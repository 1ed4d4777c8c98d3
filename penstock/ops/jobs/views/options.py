"""All options of a job: what holds, what would hold if nobody had set it, and who has. Flink has no such path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.engine.model.config import Layer
from penstock.engine.model.options.catalogue import (
    GROUPS,
    WITHOUT_EFFECT,
    documentation,
    find_option,
)
from penstock.engine.model.options.option import NAME, Option
from penstock.engine.model.texts.redaction import HIDDEN, is_secret, redacted
from penstock.ops.jobs.snapshots import JobSnapshot
from penstock.ops.jobs.views.attempts import Json

_PAGE: Final = "reference/configuration/"
_WITHOUT_EFFECT: Final = "Accepted without effect"
_UNKNOWN: Final = "Not known to Penstock"


def options(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/options`. Links are relative to the first page of the documentation."""
    found = _Options(job)
    subjects = [*found.subjects()]
    return {
        "subjects": subjects,
        "total": sum(len(one["options"]) for one in subjects),
        "set": sum(option["set"] for one in subjects for option in one["options"]),
        "job-parameters": redacted(job.facts.user_config),
    }


class _Options:
    """The options of one job. `_told`: the keys of those that had their turn."""

    def __init__(self, job: JobSnapshot) -> None:
        self._values = job.facts.configuration
        self._origins = job.facts.options.origins
        self._host_defaults = job.facts.options.host_defaults
        self._told: set[str] = set()

    def subjects(self) -> Iterator[Json]:
        unused: list[Option[Any]] = []
        for group in GROUPS:
            options = group.options()
            unused += [one for one in options if not one.is_used]
            used = [one for one in options if one.is_used]
            yield self._subject(group.title, " ".join((group.__doc__ or "").split()), used)
        text = (
            "Programs for Flink set these options. Penstock checks their values and ignores them."
        )
        yield self._subject(_WITHOUT_EFFECT, text, [*unused, *WITHOUT_EFFECT])
        others = [key for key in sorted(self._values) if key not in self._told]
        if others:
            text = "Penstock ignores these keys. They may be of other software, or misspelt."
            rows = [self._row(key, None, None) for key in others]
            yield {"subject": _UNKNOWN, "doc": text, "page": None, "options": rows}

    def _subject(self, title: str, text: str, known: Sequence[Option[Any]]) -> Json:
        docs = documentation()
        rows = [
            self._row(one.key, one, docs[option.key])
            for option in known
            for one in self._each(option)
        ]
        self._told |= {one["key"] for one in rows}
        return {"subject": title, "doc": text, "page": page_of(title), "options": rows}

    def _each(self, option: Option[Any]) -> Iterator[Option[Any]]:
        """An option for several names, and after it each name that is set."""
        yield option
        if NAME in option.key:
            pattern = re.compile(re.escape(option.key).replace(re.escape(NAME), "([^.]+)"))
            for key in sorted(self._values):
                named = pattern.fullmatch(key)
                # A key that is an option itself, or fits another one, is not meant.
                if named is not None and find_option(key) == option.of(named[1]):
                    yield option.of(named[1])

    def _row(self, key: str, option: Option[Any] | None, doc: str | None) -> Json:
        by = key
        if key not in self._values and option is not None and option.fallback is not None:
            by = option.fallback.key
        origin = self._origins.get(by, Layer.DEFAULT)
        is_set = by in self._values and origin is not Layer.DEFAULT
        flinks = None if option is None else option.default
        default = self._host_defaults.get(key, flinks)
        value = self._values.get(by, default) if is_set else default
        return {
            "key": key,
            "value": HIDDEN if value is not None and is_secret(key) else value,
            "default": default,
            "flink-default": flinks,
            "set": is_set,
            "set-by": str(origin) if is_set else None,
            "set-as": by if is_set and by != key else None,
            "type": None if option is None else option.kind.name,
            "doc": doc,
        }


def page_of(title: str) -> str:
    """Return where the documentation has a subject."""
    return f"{_PAGE}#{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}"
