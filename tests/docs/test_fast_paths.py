"""docs/internals/fast-paths.md: each fast path names modules, tests and a gain that are there."""

import re

import pytest

from tests.docs.snippets import ROOT

PAGE = ROOT / "docs" / "internals" / "fast-paths.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| fast path")
]
SECTIONS = set(re.findall(r"^## (.+)$", (ROOT / "benchmarks/RESULTS.md").read_text("utf-8"), re.M))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_fast_path_has_modules_a_test_and_a_gain_with_its_source(row):
    _, modules, _, tests, gain = row
    named = re.findall(r"`([\w/]+\.py)`", modules)
    assert named or modules == "the same"
    assert all((ROOT / "penstock" / name).exists() for name in named)
    held_by = re.findall(r"`(tests/[\w/]+\.py)`", tests)
    assert held_by and all((ROOT / name).exists() for name in held_by)
    sources = re.findall(r"\(`(.+?)`\)", gain)
    assert gain.startswith("not measured since") or (sources and SECTIONS.issuperset(sources))
