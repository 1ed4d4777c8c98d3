"""Links of the documents lead to files and headings that are there. `make docs` checks the built site besides."""

import re

import pytest

from tests.docs.snippets import PAGES, ROOT

LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
EVERY = [
    *PAGES,
    *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
]


def anchors(page):
    """Of its headings, as mkdocs makes them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles]
    named = {re.sub(r"[-\s]+", "-", title) for title in plain}
    return named | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("page", EVERY, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        target = page.parent / link["file"] if link["file"] else page
        assert target.exists(), f"{page}: {link[0]}"
        if link["anchor"]:
            assert link["anchor"] in anchors(target), f"{page}: {link[0]}"


def test_the_site_has_every_page():
    named = re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(named) == pages
    assert len(named) == len(pages)
