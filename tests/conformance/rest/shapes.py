"""Compares the shape of an answer with that of Flink: which keys, which types. Values differ anyway."""

import json
import re
from pathlib import Path

RECORDED = json.loads(Path(__file__).with_name("flink_2_3.json").read_text(encoding="utf-8"))

OPEN_MAPS = {
    "failureLabels",
    "user-config",
    "optimizer_properties",
    "extendedResources",
    "accumulator-results",
}
"""Objects whose keys are data."""
MORE_THAN_FLINK = {"host", "blocked"}
"""`host`: Flink's dashboard reads it, and Flink does not send it. `blocked`: Flink leaves it out when it is false."""
MAY_BE_NULL = {".latest.failed"}
"""Only a checkpoint that was under way at the failure is one that failed."""
_ID = re.compile("[0-9a-f]{32}")


def differences(theirs, ours, path=""):
    """What ours lacks, has more, or has of another type."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return list(_of_objects(theirs, ours, path))
    if path in MAY_BE_NULL and None in (theirs, ours):
        return []
    if isinstance(theirs, list) and isinstance(ours, list):
        if theirs and not ours:
            return [f"{path}: empty"]
        return differences(theirs[0], _alike(theirs[0], ours), f"{path}[]") if theirs else []
    is_same = isinstance(ours, bool) == isinstance(theirs, bool) and (
        type(theirs) is type(ours) or {type(theirs), type(ours)} <= {int, float}
    )
    return [] if is_same else [f"{path}: {theirs!r} is {ours!r} here"]


def _alike(wanted, elements):
    """The first of the same kind: checkpoints in progress, for example, have fewer fields than completed ones."""
    kind = wanted.get("className") if isinstance(wanted, dict) else None
    of_kind = (one for one in elements if kind is not None and one.get("className") == kind)
    return next(of_kind, elements[0])


def _of_objects(theirs, ours, path):
    last = path.rpartition(".")[2]
    if last in OPEN_MAPS:
        return
    if theirs and all(_ID.fullmatch(key) for key in theirs):
        theirs, ours = ({"*": next(iter(one.values()))} for one in (theirs, ours) if one)
    for key in theirs.keys() - ours.keys():
        yield f"{path}.{key}: lacking"
    for key in ours.keys() - theirs.keys() - MORE_THAN_FLINK:
        yield f"{path}.{key}: more than Flink sends"
    for key in theirs.keys() & ours.keys():
        yield from differences(theirs[key], ours[key], f"{path}.{key}")
