"""The texts that the troubleshooting page explains are those that the code has."""

import re

import pytest

from tests.docs.snippets import ROOT
from tests.docs.texts import texts

PAGE = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text("utf-8")
ENTRY = re.compile(r"^### `(?P<text>[^`\n]+)`\n\n(?P<body>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
ENTRIES = {found["text"]: found["body"] for found in ENTRY.finditer(PAGE)}


@pytest.mark.parametrize("text", ENTRIES)
def test_a_text_that_is_explained_stands_in_the_code(text):
    assert any(text in found for found in texts()), f"no error of the package says: {text}"


@pytest.mark.parametrize("text", ENTRIES)
def test_an_entry_has_a_cause_and_something_to_do(text):
    assert re.search(r"^\*\*Cause\.\*\* \S", ENTRIES[text], re.MULTILINE)
    assert re.search(r"^\*\*Do\.\*\* \S", ENTRIES[text], re.MULTILINE)


def test_there_are_many_entries():
    assert len(ENTRIES) == PAGE.count("\n### ") >= 20
