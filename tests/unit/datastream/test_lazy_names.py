"""Names that a package imports when they are asked for are seen by completion and by type checkers."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from penstock.datastream.building.former_names import OF_CONNECTORS, OF_FORMATS

PACKAGES = {
    "penstock.datastream.connectors": OF_CONNECTORS,
    "penstock.datastream.formats": OF_FORMATS,
}


def exists(package: str, name: str) -> bool:
    try:
        getattr(import_module(package), name)
    except NotImplementedError:  # It says what to use instead.
        return False
    return True


def imported_for_type_checkers(package: str) -> dict[str, str]:
    """Name -> module of each import below `if TYPE_CHECKING`."""
    tree = ast.parse(Path(import_module(package).__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.asname: node.module
        for node in block.body
        for alias in node.names
        if alias.name == alias.asname
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_completion_finds_every_name(package):
    assert set(PACKAGES[package]) <= set(dir(import_module(package)))


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_find_every_name_that_exists(package):
    there = {name: module for name, module in PACKAGES[package].items() if exists(package, name)}
    assert imported_for_type_checkers(package) == there


def test_what_a_program_writes_to_and_reads_from_files_can_be_guessed():
    from penstock.datastream.connectors import FileSource, StreamFormat
    from penstock.datastream.formats import CsvReaderFormat, ParquetBulkWriters

    assert {FileSource, StreamFormat, CsvReaderFormat, ParquetBulkWriters}
