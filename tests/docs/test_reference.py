"""The reference pages are those that the code has."""

import importlib
import inspect
import pkgutil
import re

import pytest

import penstock.common
import penstock.datastream
import penstock.metrics
import penstock.testing
from penstock.common import Types
from penstock.engine.runtime.codecs.by_type import codec_of
from scripts.reference_pages import PAGES, documents, public_names
from tests.docs.snippets import ROOT

GENERATED = documents()
TYPES = (ROOT / "docs" / "reference" / "types.md").read_text("utf-8")
TYPE_ROW = re.compile(r"^\| `(?P<made>Types\.[^`]+)` \| [^|]+ \| `?(?P<arrow>[^|`]+)`? \|$", re.M)


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_generated_page_is_up_to_date(path):
    assert path.read_text("utf-8") == GENERATED[path], "run: python -m scripts.reference_pages"


@pytest.mark.parametrize("row", list(TYPE_ROW.finditer(TYPES)), ids=lambda row: row["made"])
def test_a_type_travels_as_the_page_says(row):
    codec = codec_of(eval(row["made"], {"Types": Types}))
    assert str(codec.arrow or "pickled") == row["arrow"]


def test_the_page_of_types_has_all_of_them():
    named = set(re.findall(r"^\| `Types\.(\w+)", TYPES, re.MULTILINE))
    assert named == {name for name in vars(Types) if name.isupper()}


def public_modules():
    for package in (penstock.common, penstock.datastream, penstock.metrics, penstock.testing):
        yield package.__name__
        prefix = f"{package.__name__}."
        yield from (found.name for found in pkgutil.walk_packages(package.__path__, prefix))


def test_every_public_name_has_its_place():
    """By its object: many names are exported by several modules."""
    shown = set()
    for module in map(importlib.import_module, (name for page in PAGES for name in page.modules)):
        shown |= {id(getattr(module, name)) for name in public_names(module)}
    missing = [
        f"{name}.{member}"
        for name in public_modules()
        for member in getattr(importlib.import_module(name), "__all__", ())
        if id(getattr(importlib.import_module(name), member)) not in shown
    ]
    assert missing == []


NUMBERS = re.compile(r"\b(int|float)\b")


def methods_of_public_classes():
    """Those that a class defines itself, as they are looked up, with the annotations of their functions."""
    modules = map(importlib.import_module, (name for page in PAGES for name in page.modules))
    public = {id(one): one for m in modules for one in (getattr(m, n) for n in public_names(m))}
    for kind in filter(inspect.isclass, public.values()):
        for name, found in vars(kind).items():
            function = found.__func__ if isinstance(found, staticmethod | classmethod) else found
            if inspect.isfunction(function) and not name.startswith("_"):
                yield f"{kind.__name__}.{name}", getattr(kind, name), function.__annotations__


def test_a_public_method_with_numbers_says_what_they_are():
    """Its own docstring or that of a base: nobody can guess whether a number is ms or s."""
    silent = [
        name
        for name, method, annotations in methods_of_public_classes()
        if NUMBERS.search(" ".join(map(str, annotations.values()))) and not inspect.getdoc(method)
    ]
    assert silent == []


def test_pages_for_users_name_no_internal_address():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        if "internals" not in page.parts:
            found = re.findall(
                r"penstock\.(?:hosting|machines|model)\b[\w.]*", page.read_text("utf-8")
            )
            assert not found, f"{page}: {found}"
