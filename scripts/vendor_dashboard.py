"""Bring the dashboard's vendored parts to the versions that stand here: `python -m scripts.vendor_dashboard`. It needs npm.

Each part is one file of an npm package, unchanged but for the names of modules that it imports, for a browser knows no packages, and
for a last line that exports what a minified script only names.
`vendor/parts.json` then says where each file comes from, and the sum of its bytes; a test compares them.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

VENDOR: Final = Path(__file__).parents[1] / "penstock" / "ops" / "dashboard" / "vendor"


@dataclass(frozen=True)
class Part:
    """One file of a package. Declarations for the type checker lie beside it, written by hand.

    `source`: inside the package. `exports`: the variable of a script that the module exports; empty for a module.
    """

    file: str
    package: str
    version: str
    licence: str
    source: str
    exports: str = ""


PARTS: Final = (
    Part("preact.js", "preact", "11.2.0", "MIT", "dist/preact.mjs"),
    Part("hooks.js", "preact", "11.2.0", "MIT", "hooks/dist/hooks.mjs"),
    Part("htm.js", "htm", "3.1.1", "Apache-2.0", "dist/htm.module.js"),
    Part("uplot.js", "uplot", "1.6.32", "MIT", "dist/uPlot.iife.min.js", "uPlot"),
    Part("uplot.css", "uplot", "1.6.32", "MIT", "dist/uPlot.min.css"),
    Part("dagre.js", "@dagrejs/dagre", "3.1.3", "MIT", "dist/dagre.esm.js"),
)
RENAMED: Final = {'from"preact"': 'from"./preact.js"', "//# sourceMappingURL": "// Source map"}


def main() -> int:
    """Write all files. Returns an exit code."""
    known = []
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            package = _unpacked(part, Path(folder))
            text = (package / part.source).read_text(encoding="utf-8")
            for old, new in RENAMED.items():
                text = text.replace(old, new)
            if part.exports:
                text = f"{text.rstrip()}\nexport default {part.exports};\n"
            (VENDOR / part.file).write_text(text, encoding="utf-8")
            licence = next(path for path in package.iterdir() if path.stem.upper() == "LICENSE")
            name = f"{part.package.rpartition('/')[2]}.LICENSE.txt"
            (VENDOR / name).write_bytes(licence.read_bytes())
            known.append({**asdict(part), "sha256": hashlib.sha256(text.encode()).hexdigest()})
    (VENDOR / "parts.json").write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    return 0


def _unpacked(part: Part, folder: Path) -> Path:
    target = folder / part.package.replace("/", "-")
    if not target.exists():
        target.mkdir()
        wanted = f"{part.package}@{part.version}"
        packed = subprocess.run(
            ["npm", "pack", "--silent", wanted],
            cwd=target,
            capture_output=True,
            text=True,
            check=True,
        )
        with tarfile.open(target / packed.stdout.strip()) as archive:
            archive.extractall(target, filter="data")
    return target / "package"


if __name__ == "__main__":
    sys.exit(main())
