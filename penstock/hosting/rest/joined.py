"""The dashboard's modules and styles as one file each, because a browser takes some milliseconds for each file that it asks for.

Nothing is translated. A module becomes a function that is called once, when another one first needs it, and gives what it exports. So
only the forms of `import` and `export` change, and each line stays as it was written. Nothing here knows HTTP.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final

_NAMES: Final = r"\{(?P<names>[^}]*)\}"
_FROM: Final = r'from\s*"(?P<path>\.[^"]+)"'
# The word stands first in each pattern, and only then what may stand before it: searching is ten times as quick so.
_IMPORT_WORD: Final = r"import(?<![^;}\n]import)"
_EXPORT_WORD: Final = r"export(?<![^;}\n]export)"
_IMPORT: Final = re.compile(rf"{_IMPORT_WORD}\s*(?:(?P<one>\w+)|{_NAMES})\s*{_FROM};")
_PASSED_ON: Final = re.compile(rf"{_EXPORT_WORD}\s*{_NAMES}\s*{_FROM};")
_DECLARED: Final = re.compile(
    rf"{_EXPORT_WORD} (?P<kind>(?:async )?function|class|const) (?P<name>\w+)"
)
_LISTED: Final = re.compile(rf"{_EXPORT_WORD}\s*{_NAMES};")
_DEFAULT: Final = re.compile(rf"{_EXPORT_WORD} default ")
_LOADED: Final = re.compile(r'import(?<==> import)\("(?P<path>\.[^"]+)"\)')
_COMMENT: Final = re.compile(
    r"^[ \t]*(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)[ \t]*$", re.MULTILINE | re.DOTALL
)
_LEFT: Final = re.compile(
    rf'{_IMPORT_WORD}\s*[\w{{"*]|{_EXPORT_WORD}\s*[\w{{*]'
    r"|import(?<=[=>(] import)\(|import(?<=await import)\("
)
_BEGIN: Final = """\
// All modules of the dashboard, each as a function. They lie in penstock/dashboard of the source.
const once = (make) => {
  let made;
  return () => (made ??= make());
};
"""


class CannotJoinError(Exception):
    """A module has a form of `import` or `export` that is not known here, or modules import each other in a circle."""


def joined_modules(modules: Mapping[str, str], first: str) -> str:
    """Return one module that runs `first` and holds all that it needs, at once or later.

    `modules`: texts by path, such as `app/main.js`. Raises CannotJoinError.
    """
    parts: dict[str, str] = {}
    waiting = [first]
    while waiting:
        _add(waiting.pop(), modules, parts, waiting, ())
    return "".join([_BEGIN, *parts.values(), f"{_function_of(first)}();\n"])


def joined_styles(styles: Mapping[str, str], paths: list[str]) -> str:
    """Return the rules of these files, in this order."""
    return "".join(f"/* {path} */\n{styles[path].rstrip()}\n" for path in paths)


def _add(
    path: str,
    modules: Mapping[str, str],
    parts: dict[str, str],
    waiting: list[str],
    above: tuple[str, ...],
) -> None:
    """Add a module and what it needs to the parts, and what it loads later to those that wait. `above`: what needs it."""
    if path in parts:
        return
    if path in above:
        raise CannotJoinError(f"modules import each other: {' -> '.join([*above, path])}")
    if path not in modules:
        raise CannotJoinError(f"{above[-1] if above else 'a page'} imports {path}: no such file")
    part = _Part(path, modules[path])
    for needed in part.needed:
        _add(needed, modules, parts, waiting, (*above, path))
    parts[path] = part.text
    waiting += part.later


class _Part:
    """One module as a function. `needed`: paths of modules that it imports; `later`: of those that it loads when it wants them."""

    def __init__(self, path: str, source: str) -> None:
        self._folder = posixpath.dirname(path)
        self.needed: list[str] = []
        self.later: list[str] = []
        exports: list[str] = []

        def imported(found: re.Match[str]) -> str:
            pairs = [("default", found["one"])] if found["one"] else _pairs(found["names"])
            names = ", ".join(f"{there}: {here}" for there, here in pairs)
            return f"const {{ {names} }} = {self._needs(found['path'])}();"

        def passed_on(found: re.Match[str]) -> str:
            at = self._needs(found["path"])
            exports.extend(f"{new}: {at}().{old}" for old, new in _pairs(found["names"]))
            return ""

        def declared(found: re.Match[str]) -> str:
            exports.append(found["name"])
            return f"{found['kind']} {found['name']}"

        def listed(found: re.Match[str]) -> str:
            exports.extend(f"{new}: {old}" for old, new in _pairs(found["names"]))
            return ""

        def default(_found: re.Match[str]) -> str:
            exports.append("default: _default")
            return "const _default = "

        def loaded(found: re.Match[str]) -> str:
            later = self._at(found["path"])
            self.later.append(later)
            return f"Promise.resolve().then({_function_of(later)})"

        text = _COMMENT.sub(_blank, source)
        text = _IMPORT.sub(imported, text)
        text = _PASSED_ON.sub(passed_on, text)
        text = _DECLARED.sub(declared, text)
        text = _LISTED.sub(listed, text)
        text = _DEFAULT.sub(default, text)
        text = _LOADED.sub(loaded, text)
        left = _LEFT.search(text)
        if left is not None:
            raise CannotJoinError(
                f"{path} has a form that cannot be joined: {text[left.start() :][:80]!r}"
            )
        name = _function_of(path)
        self.text = (
            f"// {path}\nconst {name} = once(() => {{{text.rstrip()}\n"
            f"return {{ {', '.join(exports)} }};\n}});\n"
        )

    def _at(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._folder, path))

    def _needs(self, path: str) -> str:
        needed = self._at(path)
        self.needed.append(needed)
        return _function_of(needed)


def _function_of(path: str) -> str:
    return "_" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _pairs(names: str) -> list[tuple[str, str]]:
    """Return what stands between braces: `a, b as c` are (a, a) and (b, c)."""
    parts = [one.split() for one in names.split(",") if one.strip()]
    return [(part[0], part[-1]) for part in parts]
