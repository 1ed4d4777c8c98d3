"""The Python environment of each peer: made on first use, with the versions that are named here."""

import os
import subprocess
import sys
import venv
from pathlib import Path

OURS = "penstock"
PACKAGES = {
    "bytewax": ("bytewax==0.21.1", "orjson==3.13.0"),
    "pathway": ("pathway==0.33.0",),
    "flink": ("apache-flink==2.3.0", "orjson==3.13.0"),
    "spark": ("pyspark==4.3.0",),
    "dask": ("distributed==2026.8.0", "bokeh==3.9.2"),
}


def python_of(name: str, root: Path) -> str:
    """The interpreter of that environment. Ours is the one that runs this."""
    if name == OURS:
        return sys.executable
    directory = root / name
    python = directory / "bin" / "python"
    done = directory / "installed"
    if not done.exists() or done.read_text().split() != list(PACKAGES[name]):
        print(f"making the environment of {name}: {' '.join(PACKAGES[name])}", file=sys.stderr)
        venv.create(directory, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES[name]]
        subprocess.run(install, check=True)
        done.write_text("\n".join(PACKAGES[name]))
    return str(python)


def variables(python: str) -> dict[str, str]:
    """Of a program's process: nothing of this one's environment leads to other packages."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"PYSPARK_PYTHON": python}
