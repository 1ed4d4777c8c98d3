"""What the package says of itself on an index, beside pyproject.toml: its long description and its addresses.

A metadata hook of hatchling (pyproject.toml names it). The long description is README.md, whose relative links would lead
nowhere there. Where the repository is published stands in one place, as `repository` of this hook in pyproject.toml: then
those links become absolute, and the addresses are in the metadata. Without it links become their text. Links to other
sites stay.
"""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?:|#)(?P<target>[^)\s]+)\)")
COMMENT: Final = re.compile(r"<!--.*?-->\n", re.DOTALL)
ADDRESSES: Final = {
    "Homepage": "",
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}
"""Below the repository's, as GitHub, GitLab and Forgejo have them."""


def long_description(readme: str, repository: str = "") -> str:
    """Return the README without relative links and comments. `repository`: its address; empty: it is not published."""

    def link(found: re.Match[str]) -> str:
        if not repository:
            return found["text"]
        return f"[{found['text']}]({repository}/blob/main/{found['target']})"

    return RELATIVE_LINK.sub(link, COMMENT.sub("", readme))


def addresses(repository: str) -> dict[str, str]:
    """Return the addresses by their labels on an index; none if the repository is not published."""
    return (
        {label: f"{repository}{place}" for label, place in ADDRESSES.items()} if repository else {}
    )


class PackageReadme(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = str(self.config.get("repository", "")).rstrip("/")
        text = Path(self.root, "README.md").read_text("utf-8")
        told = long_description(text, repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": told}
        metadata["urls"] = addresses(repository)
