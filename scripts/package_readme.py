"""The long description of the package: README.md without relative links, which would be broken on a
package index.

A metadata hook of hatchling (pyproject.toml names it). Links to other sites stay.
"""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?:|#)[^)\s]+\)")
COMMENT: Final = re.compile(r"<!--.*?-->\n", re.DOTALL)


def long_description(readme: str) -> str:
    return RELATIVE_LINK.sub(lambda link: link["text"], COMMENT.sub("", readme))


class PackageReadme(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text)}
