"""Writes docs/reference/configuration.md from the options: `python -m scripts.option_pages`.

Does not know the code that reads an option. A test fails if the page is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from penstock.engine.hosting.program.settings import HOST_DEFAULTS
from penstock.engine.model.config import PENSTOCK_PREFIX
from penstock.engine.model.elastic import PENSTOCK_DEFAULTS
from penstock.engine.model.options.catalogue import GROUPS, WITHOUT_EFFECT, documentation
from penstock.engine.model.options.option import Option

TARGET: Final = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"

_INTRODUCTION: Final = """\
# Configuration

<!-- Written by `python -m scripts.option_pages`. Change the options instead. -->

You can set an option in four places. The first one in this list that sets it counts:

1. the program: `env.get_config()`, `env.configure(...)` or a setter of the environment;
2. the command line: `penstock run -D key=value`;
3. Spark's configuration: `spark.penstock.<key>`, for example `spark.penstock.slot.idle.timeout`
   for `slot.idle.timeout`, and `spark.penstock.x` for `penstock.x`: of a SparkSession, by `--conf`,
   PYSPARK_SUBMIT_ARGS or spark-defaults.conf. `penstock plan` and `savepoint check` start no Spark,
   so they don't see these. `execution.target` is set in one of the first two places;
4. the defaults of the cluster that runs the job.

Keys that begin with `penstock.` are Penstock's own. An unknown one is an error. All others are Flink's
keys. Penstock ignores keys that it does not know, and prints their names when the job starts.

| Type | Examples | Notes |
|---|---|---|
| duration | `200 ms`, `5 s`, `10 min`, `1 h` | A number without a unit is in milliseconds. |
| fine duration | `500 us`, `5 ms` | A duration that may be shorter than a millisecond. |
| size | `32 kb`, `64 mb`, `1 gb` | Units are powers of 1024. A number without a unit is in bytes. |
| whole number | `4` | `infinite` is the largest one. |
| number | `0.1` | |
| true or false | `true` | |
| text | `EXACTLY_ONCE` | |
| list of texts | `a;b` | |
| pairs of texts | `a:1,b:2` | |
"""
_WITHOUT_EFFECT: Final = """\
## Accepted without effect

Programs for Flink set these options. Penstock checks their values and then ignores them.
"""


def page() -> str:
    """The whole text of the page."""
    parts = [_INTRODUCTION]
    for group in GROUPS:
        used = [option for option in group.options() if option.is_used]
        text = " ".join((group.__doc__ or "").split())
        parts.append(f"## {group.title}\n\n{text}\n\n{_table(used)}")
    unused = [option for group in GROUPS for option in group.options() if not option.is_used]
    parts.append(f"{_WITHOUT_EFFECT}\n{_table([*unused, *WITHOUT_EFFECT])}")
    return "\n".join(parts)


def _table(options: Iterable[Option[Any]]) -> str:
    return "\n".join(_lines(options)) + "\n"


def _lines(options: Iterable[Option[Any]]) -> Iterator[str]:
    yield "| Key | Type | Default | Meaning |"
    yield "|---|---|---|---|"
    for option in options:
        yield f"| `{option.key}` | {option.kind.name} | {_default(option)} | {_meaning(option)} |"


def _default(option: Option[Any]) -> str:
    """The default in Flink; if Penstock's default differs, it comes first."""
    flinks = "none" if option.default is None else f"`{option.default}`"
    own = HOST_DEFAULTS.get(option.key, PENSTOCK_DEFAULTS.get(option.key))
    if own is None:
        return flinks
    is_own = option.key.startswith(PENSTOCK_PREFIX)
    return f"`{own}`" if is_own else f"`{own}` (Flink: {flinks})"


def _meaning(option: Option[Any]) -> str:
    former = "".join(f" Former key: `{key}`." for key in option.former_keys)
    return (documentation()[option.key] + former).replace("|", "\\|")


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
