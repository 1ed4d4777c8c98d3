"""The programs in the documents: each Python block, with what is printed below it.

A block is a program of its own. A comment before it changes that, and readers of the built pages do not see it:

    <!-- snippet: continues -->     goes on where the block before it ended
    <!-- snippet: spark -->         has `spark`, a real session
    <!-- setup ... -->              Python that runs before the block

Output is compared line by line, in any order, for subtasks print side by side.
"""

import linecache
import re
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PIECE = re.compile(
    r"^<!-- snippet: (?P<marks>[a-z, ]+) -->$"
    r"|^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Part:
    code: str
    printed: str | None
    line: int


@dataclass
class Program:
    """Blocks of one page that run one after the other."""

    page: Path
    needs_spark: bool
    parts: list[Part] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.parts[0].line}"


def programs_of(page: Path) -> list[Program]:
    text = page.read_text("utf-8")
    found: list[Program] = []
    marks: set[str] = set()
    setup = ""
    for piece in PIECE.finditer(text):
        if piece["marks"] is not None:
            marks = set(piece["marks"].split(", "))
            assert marks <= {"continues", "spark"}, f"{page}: unknown marks {marks}"
        elif piece["setup"] is not None:
            setup = piece["setup"]
        else:
            if "continues" not in marks:
                found.append(Program(page, "spark" in marks))
            line = text.count("\n", 0, piece.start()) + 1
            found[-1].parts.append(Part(setup + piece["code"], piece["printed"], line))
            marks, setup = set(), ""
    return found


PROGRAMS = [program for page in PAGES for program in programs_of(page)]


def run(program: Program, folder: Path, monkeypatch, capsys, **given: object) -> None:
    """As `python program.py` in `folder`. Files that a page has below /mnt are made below `folder`."""
    main = types.ModuleType("__main__")
    main.__dict__.update(given)
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "__main__", main)
    script = folder / "my_job.py"
    for part in program.parts:
        code = part.code.replace("/mnt/", f"{folder}/mnt/")
        script.write_text(code, "utf-8")
        linecache.checkcache(str(script))  # tracebacks quote this part
        exec(compile(code, str(script), "exec"), main.__dict__)
        printed = capsys.readouterr().out.replace(f"{folder}/mnt/", "/mnt/")
        if part.printed is not None:
            shown = printed.replace(f"{folder}/", "").splitlines()
            assert sorted(shown) == sorted(part.printed.splitlines())
