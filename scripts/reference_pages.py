"""Writes the generated pages of docs/reference: the command line, from its parser, and the API,
from the public modules.

    python -m scripts.reference_pages

Public names are those in `__all__`; a module without it shows the classes and functions that it
defines. If several modules export a name, its text is on the first page that shows it.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from penstock.ops.cli.arguments import parser

REFERENCE: Final = Path(__file__).parents[1] / "docs" / "reference"
EXAMPLES: Final = {
    "session": [
        "penstock session --master 'local[8]' -d",
        "penstock run -m localhost:8081 my_job.py",
        "penstock session stop -m localhost:8081",
    ],
    "plan": (
        "penstock plan examples/word_count.py --taskmanagers 2 --slots 3",
        "penstock plan examples/word_count.py --cluster left=3,3 --cluster right=2 --fail tm-1",
    ),
    "run": (
        "penstock run my_job.py -D parallelism.default=4 -- --input /data",
        "penstock run my_job.py --master local[5] --taskmanagers 2 --slots 2",
        "penstock run my_job.py -s /mnt/savepoints/savepoint-5f2c8a-0123456789ab",
        "penstock run -d my_job.py --log-file my_job.log",
    ),
    "recover": ("penstock recover --cluster-id nightly --storage-dir /mnt/ha",),
    "doctor": ("penstock doctor --master spark://host:7077 -D parallelism.default=8",),
    "list": ("penstock list", "penstock list -a --json", "penstock list -m localhost:8081"),
    "info": ("penstock info", "penstock info 7e7cae1b"),
    "verdict": ("penstock verdict 7e7cae1b",),
    "cancel": ("penstock cancel 7e7cae1b",),
    "stop": ("penstock stop 7e7cae1b -p /mnt/savepoints",),
    "checkpoint": ("penstock checkpoint 7e7cae1b",),
    "checkpoints": ("penstock checkpoints 7e7cae1b",),
    "exceptions": ("penstock exceptions 7e7cae1b -n 3",),
    "story": ("penstock story 7e7cae1b", "penstock story 7e7cae1b Prices/3"),
    "logs": (
        "penstock logs 7e7cae1b -f",
        "penstock logs tm-1-7e7cae -n 500",
        "penstock logs --driver",
    ),
    "metrics": (
        "penstock metrics 7e7cae1b --get numRestarts",
        "penstock metrics --vertex Prices --get 'numRecords*PerSecond'",
        "penstock metrics --vertex Prices --subtask 3",
    ),
    "stacks": (
        "penstock stacks 7e7cae1b",
        "penstock stacks 7e7cae1b Prices --subtask 3 --state on-cpu",
    ),
    "top": ("penstock top", "penstock top 7e7cae1b -i 1", "penstock top --once"),
    "rescale": ("penstock rescale 7e7cae1b 8", "penstock rescale 7e7cae1b Prices=8"),
    "history": (
        "penstock history /mnt/archive",
        "penstock history s3://jobs/archive /mnt/archive --port 8083",
    ),
    "transactions list": (
        "penstock transactions list --kafka broker-1:9092 --prefix invoices",
        "penstock transactions list --sql postgresql+psycopg://jobs@db-1/shop",
        "penstock transactions list --savepoint /mnt/savepoints/savepoint-5f2c8a-0123456789ab",
    ),
    "transactions commit": (
        "penstock transactions commit --kafka broker-1:9092 --savepoint /mnt/5f2c8a/chk-7",
        "penstock transactions commit --sql sqlite:////shop.db --table counts --savepoint chk-7",
    ),
    "transactions abort": (
        "penstock transactions abort --kafka broker-1:9092 --prefix invoices",
        "penstock transactions abort --sql postgresql+psycopg://jobs@db-1/shop --prefix 5f2c8a",
    ),
    "savepoint take": (
        "penstock savepoint take 7e7cae1b /mnt/savepoints",
        "penstock savepoint 7e7cae1b",
    ),
    "savepoint check": (
        "penstock savepoint check my_job.py /mnt/savepoints/savepoint-5f2c8a-0123456789ab",
    ),
    "savepoint inspect": (
        "penstock savepoint inspect /mnt/savepoints/savepoint-5f2c8a-0123456789ab",
    ),
    "savepoint dispose": (
        "penstock savepoint dispose /mnt/savepoints/savepoint-5f2c8a-0123456789ab",
    ),
}
CLI_HEAD: Final = """# Command line

`penstock` runs a program, shows its plan, steers its jobs while they run, examines a Spark, takes
over jobs, shows jobs that have ended, looks into savepoints, and ends transactions that dead jobs
have left.

The commands for running jobs ask the REST server of the job's driver. They find the drivers of
this user on this machine by themselves. A job is named by its id, the beginning of its id, or its
name; without a name the only running job is meant. Subtasks are counted from 0, as in Flink's REST
API.

`-D KEY=VALUE` sets an option of [Configuration](configuration.md). The program's own settings win
over it; it wins over Spark's configuration (`spark.penstock.<key>`). The exit code is 0 when what
you asked for is so, 1 when it is not or could not be asked, and 2 when the command line is wrong.
Ctrl-C in a command that only looks (`logs -f`, `top`, `history`) ends it with 0.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the API: the modules whose names it shows, in this order."""

    file: str
    title: str
    text: str
    modules: tuple[str, ...]


_CONNECTORS: Final = "penstock.datastream.connectors"
_FORMATS: Final = "penstock.datastream.formats"
PAGES: Final = (
    Page(
        "functions",
        "penstock.datastream.functions",
        "What programs extend, and what functions are given.",
        ("penstock.datastream.functions",),
    ),
    Page(
        "state",
        "penstock.datastream.state",
        "State handles and their descriptors.",
        ("penstock.datastream.state",),
    ),
    Page(
        "window",
        "penstock.datastream.window",
        "Windows, assigners, triggers and evictors.",
        ("penstock.datastream.window",),
    ),
    Page(
        "columns",
        "penstock.datastream.columns",
        "Expressions and aggregates over Arrow columns. PyFlink does not have them.",
        ("penstock.datastream.columns",),
    ),
    Page(
        "connectors",
        "penstock.datastream.connectors",
        "Sources and sinks, and the contracts to write your own.",
        (
            _CONNECTORS,
            *(
                f"{_CONNECTORS}.{name}"
                for name in (
                    "base",
                    "file_system",
                    "kafka",
                    "pulsar",
                    "rabbitmq",
                    "redis",
                    "mqtt",
                    "nats",
                    "http",
                    "sql_sink",
                    "sql_source",
                    "sql_lookup",
                    "jdbc",
                    "cdc",
                    "elasticsearch",
                    "lakehouse",
                    "hybrid_source",
                    "nexmark",
                )
            ),
        ),
    ),
    Page(
        "formats",
        "penstock.datastream.formats",
        "Formats of files and messages.",
        tuple(
            f"{_FORMATS}.{name}"
            for name in (
                "json",
                "csv",
                "avro",
                "protobuf",
                "registry",
                "parquet",
                "orc",
                "debezium",
            )
        ),
    ),
    Page(
        "savepoint",
        "penstock.datastream.savepoint",
        "Reading savepoints and checkpoints.",
        ("penstock.datastream.savepoint",),
    ),
    Page(
        "datastream",
        "penstock.datastream",
        "The environment, streams, and what they take.",
        (
            "penstock.datastream",
            "penstock.datastream.data_stream",
            "penstock.datastream.async_retry_predicates",
            "penstock.datastream.async_retry_strategies",
        ),
    ),
    Page(
        "common",
        "penstock.common",
        "Types, times, watermarks, configuration and results.",
        (
            "penstock.common",
            "penstock.common.typeinfo",
            "penstock.common.watermark_strategy",
            "penstock.common.constants",
        ),
    ),
    Page(
        "metrics",
        "penstock.metrics",
        "Metrics that functions register. They are reported by Flink's names.",
        ("penstock.metrics",),
    ),
    Page(
        "testing",
        "penstock.testing",
        "For tests of programs; see [Testing](../../guides/testing.md).",
        ("penstock.testing",),
    ),
)
INDEX_HEAD: Final = """# API

Every public name, by module. Names, parameters and defaults are PyFlink's where PyFlink has them. Any other module of the package is
internal and may change.
"""


# ---------------------------------------------------------------- command line


def command_line() -> str:
    parts = [CLI_HEAD.rstrip()]
    for name, help_text, command in _commands(parser(), ""):
        parts += [f"## penstock {name}", _sentence(help_text)]
        parts.append("```shell\n" + "\n".join(EXAMPLES[name]) + "\n```")
        parts.append("\n".join(["| Argument | What it is |", "|---|---|", *_rows(command)]))
    return "\n\n".join(parts) + "\n"


def _commands(
    of: argparse.ArgumentParser, prefix: str
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """(name, help, parser) of each command that has no commands below it."""
    for action in of._actions:  # Argparse does not report them anywhere else.
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, command in action.choices.items():
            below = list(_commands(command, f"{prefix}{name} "))
            yield from below or [(f"{prefix}{name}", helps[name], command)]


def _rows(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if action.dest == "help":
            continue
        shown = action.metavar or action.dest.upper()
        value = " ".join(shown) if isinstance(shown, tuple) else shown
        names = [f"{name} {value}" if action.nargs != 0 else name for name in action.option_strings]
        told = _sentence(action.help or "")
        if action.option_strings and action.required:
            told += " Required."
        if isinstance(action.default, list):
            told += " May be given several times."
        yield f"| {', '.join(f'`{name}`' for name in names or [action.dest])} | {told} |"


def _sentence(text: str) -> str:
    """Return the text with a capital, unless it begins with the name of an option."""
    begin = text[:1].upper() if text.split(" ", maxsplit=1)[0].isalpha() else text[:1]
    return begin + text[1:] + ("" if text.endswith(".") else ".")


# ---------------------------------------------------------------- API


def public_names(module: ModuleType) -> Sequence[str]:
    declared: Sequence[str] | None = getattr(module, "__all__", None)
    if declared is not None:
        return declared
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def api_pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    found: dict[str, str] = {}
    shown: dict[int, str] = {}
    for page in PAGES:
        found[page.file] = _api_page(page, shown)
    rows = [f"| [{page.title}]({page.file}.md) | {page.text} |" for page in PAGES]
    rows.sort()
    table = "\n".join(["| Module | What it has |", "|---|---|", *rows])
    found["index"] = f"{INDEX_HEAD}\n{table}\n"
    return found


def _api_page(page: Page, shown: dict[int, str]) -> str:
    """Return one page. `shown`: on which page the text of each object is, by the object's identity;
    this page's objects are added.
    """
    parts = [f"# {page.title}", page.text]
    for name in page.modules:
        module = importlib.import_module(name)
        elsewhere: list[str] = []
        own: list[str] = []
        for member in public_names(module):
            value = getattr(module, member)
            place = shown.setdefault(id(value), f"{page.file}.md#{name}.{member}")
            if place == f"{page.file}.md#{name}.{member}":
                own.append(f"::: {name}.{member}")
            else:
                elsewhere.append(f"[`{member}`]({place})")
        if len(page.modules) > 1 and (own or elsewhere):
            parts.append(f"## {name}")
        if elsewhere:
            parts.append("Described on another page: " + ", ".join(elsewhere) + ".")
        parts += own
    return "\n\n".join(parts) + "\n"


def documents() -> dict[Path, str]:
    """Text of every generated page by its path."""
    api = {REFERENCE / "api" / f"{name}.md": text for name, text in api_pages().items()}
    return {REFERENCE / "cli.md": command_line(), **api}


if __name__ == "__main__":
    for path, text in documents().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
