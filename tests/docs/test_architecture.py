"""ARCHITECTURE.md and docs/internals name what is there: rooms in the words of their docstrings, paths that exist."""

import ast
import re
import tomllib

import pytest

from tests.docs.snippets import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
ROOMS = ROOT / "docs" / "internals" / "rooms.md"
PAGES = [PAGE, *sorted((ROOT / "docs" / "internals").glob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
IN_PICTURE = re.compile(r"^    .*?([\w/]+/\w+\.py)\b", re.MULTILINE)
FILES_OF_A_TRIP = 12
LINES = 150


def rooms():
    """Every package down to two below `penstock`, in the engine to three, with the first line of its docstring."""
    package = ROOT / "penstock"
    levels = ("*", "*/*", "engine/*/*")
    inits = [path for level in levels for path in package.glob(f"{level}/__init__.py")]
    docstrings = {path: ast.get_docstring(ast.parse(path.read_text("utf-8"))) for path in inits}
    return {
        str(path.parent.relative_to(ROOT)): (docstring or "").split("\n")[0]
        for path, docstring in docstrings.items()
    }


def rows():
    """Rooms of the table: path and text of each."""
    return re.findall(
        r"^\| `(penstock(?:/\w+)+)` \| (.+) \|$", ROOMS.read_text("utf-8"), re.MULTILINE
    )


def is_path(text):
    """`a/b`, `a.py`, `a/`: no command, no call, no pattern, no address, no option."""
    return bool(re.fullmatch(r"[\w./-]+", text)) and bool(
        re.search(r"\w/|\.(py|md|toml|txt|json|yml)$", text)
    )


def paths(page):
    """Those in code spans, and the files in pictures."""
    text = FENCE.sub("", page.read_text("utf-8"))
    return [code for code in CODE.findall(text) if is_path(code)] + IN_PICTURE.findall(text)


def section(title):
    text = PAGE.read_text("utf-8")
    return re.search(rf"^### {title}.*?\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)[1]


def test_every_room_is_in_the_tables_once_in_the_words_of_its_docstring():
    listed = rows()
    assert dict(listed) == rooms()
    assert len(listed) == len(dict(listed))


def layers():
    """By floor: the rooms of each layer, the highest first, from the import contracts."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return {
        contract["containers"][0].replace(".", "/"): [
            {name.strip() for name in re.split("[|:]", layer)} for layer in contract["layers"]
        ]
        for contract in contracts
        if contract["type"] == "layers" and "containers" in contract
    }


@pytest.mark.parametrize("floor", sorted(layers()))
def test_what_stands_higher_in_the_tables_stands_no_lower_in_the_contracts(floor):
    depths = {name: depth for depth, names in enumerate(layers()[floor]) for name in names}
    listed = [path.rpartition("/") for path, _ in rows()]
    in_order = [depths[name] for above, _, name in listed if above == floor]
    assert len(in_order) > 1
    assert in_order == sorted(in_order)


@pytest.mark.parametrize("room", rooms())
def test_a_room_says_what_it_is_in_one_line(room):
    said = rooms()[room]
    assert said.endswith("."), f"{room}: {said!r} goes on in its next line"
    assert len(said) <= 135, f"{room}: {said!r} is too long for a row of a table"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_lead_somewhere(page):
    """From the root of the repository, or from `penstock`."""
    named = paths(page)
    wrong = [
        name
        for name in named
        if not (ROOT / name).exists() and not (ROOT / "penstock" / name).exists()
    ]
    assert not wrong


def test_files_that_code_names_are_there():
    """By path from `penstock` or from a folder above the file that names them; or by name."""
    sources = [*(ROOT / "penstock").rglob("*.py"), *(ROOT / "simulation").rglob("*.py")]
    names = {path.name for path in sources}
    wrong = []
    for source in sources:
        for name in re.findall(r"`([\w/]+\.py)`", source.read_text("utf-8")):
            starts = [ROOT / "penstock", *source.parents]
            if name not in names and not any((start / name).exists() for start in starts):
                wrong.append(f"{source.relative_to(ROOT)}: {name}")
    assert not wrong


def test_the_pages_name_enough_paths_for_that_to_mean_something():
    assert len(paths(PAGE)) > 80
    assert sum(len(paths(page)) for page in PAGES[1:]) > 160


@pytest.mark.parametrize("trip", ["One record", "One deployment", "One checkpoint"])
def test_a_trip_has_few_files(trip):
    assert 8 <= len(IN_PICTURE.findall(section(trip))) <= FILES_OF_A_TRIP


def test_the_page_stays_short():
    assert len(PAGE.read_text("utf-8").splitlines()) <= LINES


@pytest.mark.parametrize(
    ("question", "room"),
    [
        ("a record is sent", "penstock/engine/runtime/network"),
        ("a record is sent", "penstock/engine/hosting/network"),
        ("a slot is chosen", "penstock/engine/machines/slots"),
        ("Spark is asked for a task", "penstock/engine/hosting/spark"),
        ("a checkpoint is stored", "penstock/engine/hosting/checkpoints"),
    ],
)
def test_a_newcomer_finds_the_room_by_what_happens_there(question, room):
    assert question in rooms()[room]
