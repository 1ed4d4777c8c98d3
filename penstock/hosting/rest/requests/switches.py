"""Switches that a program offers on the dashboard, for demonstrations: files of a folder, which its functions look at.

`<name>.text` says what the switch does, in one line; it is on while `<name>.on` exists.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.requests.handlers import Driver
from penstock.model.options.rest import WebOptions

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")


def all_switches(driver: Driver, _asked: Asked) -> Answer:
    """The switches, by name. A driver whose program offers none has none."""
    folder = _folder(driver)
    found = [] if folder is None else sorted(folder.glob("*.text"))
    return Answer({"switches": [_told(one.with_suffix("")) for one in found]})


def turn(driver: Driver, asked: Asked) -> Answer:
    """Turn a switch on or off: `{"on": true}`. Raises RestError."""
    folder, name = _folder(driver), asked.path["name"]
    if folder is None or not _NAME.fullmatch(name) or not (folder / f"{name}.text").is_file():
        raise RestError(404, f"This driver's program offers no switch '{name}'.")
    if asked.flag("on"):
        (folder / f"{name}.on").touch()
    else:
        (folder / f"{name}.on").unlink(missing_ok=True)
    return Answer(_told(folder / name))


def _folder(driver: Driver) -> Path | None:
    folder = driver.settings.get(WebOptions.SWITCHES)
    return None if folder is None else Path(folder)


def _told(path: Path) -> dict[str, Any]:
    text = path.with_suffix(".text").read_text(encoding="utf-8").strip()
    return {"name": path.name, "text": text, "on": path.with_suffix(".on").exists()}
