"""What a wheel and an sdist hold, as hatchling reads pyproject.toml."""

import re
import tomllib
import zipfile
from pathlib import Path, PurePath

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from penstock.ops.rest.pages import unpacked
from scripts.pack_dashboard import NOT_SERVED
from scripts.package_readme import addresses, long_description
from tests.docs.snippets import ROOT

MOST_WHEEL_BYTES = 2_670_000
"""2 MB were the aim of the package without dashboard, REST server, autoscaler, sessions, compiled row functions and their kernels, fields of JSON, change data capture, Protobuf, schema registries and most of the connectors."""
PYTHONS = {"3.11", "3.12", "3.13", "3.14"}
"""Versions that the tests have passed with."""
NOT_FOR_USERS = {"tests", "simulation", "sim", "benchmarks", "audit", "examples", "docs", "scripts"}


def files(builder):
    """Size by path in the distribution."""
    return {
        PurePath(file.distribution_path): (ROOT / file.path).stat().st_size
        for file in builder(str(ROOT)).recurse_included_files()
    }


@pytest.fixture(scope="module")
def wheel():
    return files(WheelBuilder)


@pytest.fixture(scope="module")
def sdist():
    return set(files(SdistBuilder))


def test_a_wheel_holds_the_package_alone(wheel):
    assert {path.parts[0] for path in wheel} == {"penstock"}
    assert not [path for path in wheel if NOT_FOR_USERS & set(path.parts)]
    assert PurePath("penstock/py.typed") in wheel


def test_a_wheel_is_small(tmp_path):
    """It is built, because only then its size is known."""
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    assert Path(path).stat().st_size < MOST_WHEEL_BYTES
    with zipfile.ZipFile(path) as built:
        archive = built.read("penstock/ops/dashboard.tar.xz")
        assert not [name for name in built.namelist() if name.startswith("penstock/ops/dashboard/")]
    assert {name: page.content for name, page in unpacked(archive).items()} == {
        f"/dashboard/{name}": content for name, content in served().items()
    }


def served():
    """The dashboard's files in this checkout, by their paths in it, modules of our own without comments and types."""
    folder = ROOT / "penstock" / "ops" / "dashboard"
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(NOT_SERVED)
    }
    return {
        name: without_types(without_comments(content))
        if name.startswith("app/") and name.endswith(".js")
        else content
        for name, content in found.items()
    }


def without_comments(module):
    """Line by line. Raises AssertionError: what looks like a comment is in a template, or has code behind it."""
    kept, is_inside = [], False
    for line in module.split(b"\n"):
        begins = line.strip().startswith((b"/**", b"//"))
        if begins and not is_inside:
            assert b"\n".join(kept).count(b"`") % 2 == 0, f"in a template: {line}"
            is_inside = line.strip().startswith(b"/**")
        elif not is_inside:
            kept.append(line)
            continue
        if is_inside and b"*/" in line:
            is_inside = False
            if line.partition(b"*/")[2].strip():
                assert begins, f"code behind the end of a comment: {line}"
                kept.append(line)
    return b"\n".join(kept)


def without_types(module):
    """A comment that begins with `@` in a line of code."""
    head, *others = module.split(b"/** @")
    ends = [one.partition(b"*/")[2] for one in others]
    return b"".join([head, *(one[one.startswith(b" ") :] for one in ends)])


def test_an_sdist_has_what_builds_tests_and_documents_it(sdist):
    needed = ["README.md", "LICENSE", "mkdocs.yml", "constraints.txt", "Makefile"]
    assert {PurePath(name) for name in needed} <= sdist
    tops = {path.parts[0] for path in sdist}
    assert {"penstock", "tests", "docs", "examples", "scripts", "audit", "benchmarks"} <= tops
    assert not tops & {".venv", "site", "dist", "spark-warehouse"}


def test_the_package_does_without_what_a_wheel_leaves_out():
    left_out = re.compile(r"^\s*(from|import) (simulation|tests|audit)\b", re.M)
    for path in (ROOT / "penstock").rglob("*.py"):
        if "sim" not in path.parts:
            assert not left_out.search(path.read_text("utf-8")), path


def test_metadata_is_complete():
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert core.description
    assert core.license_expression == "Apache-2.0"
    assert core.requires_python == ">=3.11"
    assert core.readme_content_type == "text/markdown"
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"authors", "classifiers", "keywords", "license-files"} <= declared.keys()


def test_a_wheel_says_which_pythons_it_is_for():
    classifiers = set(ProjectMetadata(str(ROOT), PluginManager()).core.classifiers)
    declared = {
        one.rpartition(" ")[2] for one in classifiers if re.search(r"Python :: 3\.\d+$", one)
    }
    assert declared == PYTHONS
    assert "Programming Language :: Python :: 3 :: Only" in classifiers
    authors = ProjectMetadata(str(ROOT), PluginManager()).core.authors_data
    assert authors["name"] == ["The Penstock developers"]


README = (ROOT / "README.md").read_text("utf-8")
PUBLISHED = "https://forge.example/penstock"


@pytest.mark.parametrize("repository", ["", PUBLISHED])
def test_the_long_description_needs_nothing_beside_it(repository):
    """A package index shows it alone: relative links and pictures would lead nowhere."""
    told = long_description(README, repository)
    targets = re.findall(r"\]\(([^)]+)\)", told)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert "<!--" not in told


def test_links_of_the_long_description_are_absolute_where_the_repository_is_published():
    told = long_description(README, PUBLISHED)
    links = re.findall(rf"\]\({PUBLISHED}/blob/main/([^)#\s]+)[^)]*\)", told)
    assert len(links) > 30
    assert [path for path in links if not (ROOT / path).exists()] == []


def test_addresses_are_those_of_the_published_repository():
    """`repository` in pyproject.toml is the one place for it."""
    assert addresses("") == {}
    found = addresses(PUBLISHED)
    assert {"Homepage", "Source", "Documentation", "Changelog", "Issues"} == found.keys()
    assert all(address.startswith(PUBLISHED) for address in found.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    repository = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    assert ProjectMetadata(str(ROOT), PluginManager()).core.urls == addresses(repository)
