"""What code and tests cite is there: pages of docs/spec by heading, and nothing that the repository lacks."""

import re
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT
from tests.docs.test_links import anchors

FOLDERS = ["penstock", "simulation", "tests", "benchmarks", "audit", "docs", "examples", "scripts"]
ENDINGS = {".py", ".md", ".toml", ".yml"}
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in ENDINGS and path != Path(__file__)
) + [path for path in sorted(ROOT.glob("*")) if path.suffix in ENDINGS]

CITATION = re.compile(
    r"docs/spec/(?P<page>[\w-]+\.md)#(?P<anchor>[\w-]+)(?P<more>(?:,\s+(?:#\s+)?#[\w-]+)*)"
)
PAGE = re.compile(r"docs/spec/(?P<page>[\w-]+\.md)")
FORMER = [
    re.compile(text)
    for text in (
        r"(?<!docs/)\bspec/(flink|pyflink)",
        r"\b[Ss]pec\s+\d",
        r"\b[Ss]pec,\s+\d+\.\d",
        r"\bflink-(runtime|scheduler|elastic|observability)\b(?=.{0,6}\d)",
        r"\b(pyflink-api|users-and-reliability|design|house-plan|style-guide)\.md\b",
        r"\bthe spec('s|\b)(?! \()",
        r"\bhouse plan\b",
        r"\bstyle guide\b",
        r"\b(of )?the seeds('|\b) ?(figure|walk)|(figure|walk)( and the walk)? of the seeds",
        r"\bseed [A-Z]\d",
        r"\(design \d|[:;] design\b[.;]",
        r"\b[Ii]ssue #?\d+",
        r"\b(of|in) the facts\b",
        r"\bflink-(runtime|scheduler|elastic|observability|rest):",
    )
]


def citations(text):
    """Page and heading of each; a citation may go on with further headings of its page."""
    for found in CITATION.finditer(text):
        for anchor in [found["anchor"], *re.findall(r"#([\w-]+)", found["more"])]:
            yield found["page"], anchor


def former(text):
    return [found[0] for pattern in FORMER for found in pattern.finditer(text)]


EVERY = {path: path.read_text("utf-8") for path in FILES}
HEADINGS = {page.name: anchors(page) for page in (ROOT / "docs" / "spec").glob("*.md")}


def test_every_citation_leads_to_a_heading():
    wrong = [
        f"{path.relative_to(ROOT)}: {page}#{anchor}"
        for path, text in EVERY.items()
        for page, anchor in citations(text)
        if anchor not in HEADINGS.get(page, ())
    ]
    assert not wrong


def test_every_page_that_is_cited_is_there():
    cited = {found["page"] for text in EVERY.values() for found in PAGE.finditer(text)}
    assert cited <= set(HEADINGS)


def test_code_and_tests_do_cite():
    """Else the tests above say nothing."""
    cited = [path for path, text in EVERY.items() if path.suffix == ".py" and list(citations(text))]
    assert len(cited) > 150


def test_every_rule_names_the_class_of_flink_that_it_comes_from():
    for page in (ROOT / "docs" / "spec").glob("*.md"):
        if page.name == "index.md":
            continue
        whole = page.read_text("utf-8")
        sections = re.split(r"^## ", whole, flags=re.MULTILINE)
        assert "*Flink: " in sections[0] or all(
            "*Flink: " in section or page.name == "options.md" for section in sections[1:]
        ), page.name


def test_nothing_cites_what_is_not_here():
    found = {str(path.relative_to(ROOT)): former(text) for path, text in EVERY.items()}
    assert not {path: texts for path, texts in found.items() if texts}


@pytest.mark.parametrize(
    "text",
    [
        "Source: Flink X (spec 10.3).",
        "Expectations: spec/flink-runtime.md 5.1.",
        "by flink-runtime spec 1.2",
        "watermarks are the spec's",
        "spec,\n7.1",
        "Where the house plan was changed",
        "the walk of the seeds",
        "see design.md 7",
        "issue 5 point 6",
        "as in seed B4",
        "Source: design; Spark's shuffle",
        "Source: section 5.1 of the facts.",
        "Statistics (flink-observability: section 7).",
    ],
)
def test_the_former_ways_to_cite_are_recognized(text):
    assert former(text)


@pytest.mark.parametrize(
    "text",
    [
        "docs/spec/tasks.md#cancel",
        "OperatorChain(spec, 1)",
        "seeds are drawn",
        "the spec (a ChainSpec)",
    ],
)
def test_other_words_are_none(text):
    assert not former(text)


def test_a_citation_goes_on_with_headings_of_the_same_page():
    text = "(docs/spec/tasks.md#cancel, #time,\n#slot-table, docs/spec/state.md#backends)"
    assert list(citations(text)) == [
        ("tasks.md", "cancel"),
        ("tasks.md", "time"),
        ("tasks.md", "slot-table"),
        ("state.md", "backends"),
    ]
