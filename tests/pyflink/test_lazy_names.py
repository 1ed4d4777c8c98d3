"""Names that a package imports when they are asked for are seen by completion and by type checkers."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from penstock.common.places import PLACES as OF_COMMON
from penstock.connectors.former_names import OF_CONNECTORS, OF_FORMATS, OF_MODULES

PACKAGES = {
    "penstock.common": OF_COMMON,
    "penstock.datastream": OF_MODULES,
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
    """Name -> module of each import below `if TYPE_CHECKING` that a type checker lets programs use; without modules."""
    imported = import_module(package)
    tree = ast.parse(Path(imported.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: node.module
        for node in block.body
        for alias in node.names
        if alias.name == alias.asname or alias.name in getattr(imported, "__all__", ())
        if node.module != package
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_completion_finds_every_name(package):
    assert set(PACKAGES[package]) <= set(dir(import_module(package)))


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_find_every_name_that_exists(package):
    there = {name: module for name, module in PACKAGES[package].items() if exists(package, name)}
    assert imported_for_type_checkers(package) == there


@pytest.mark.parametrize("package", ["penstock.common", "penstock.datastream"])
def test_a_package_imports_nothing_before_it_is_asked_for(package):
    program = f"import sys, {package}; print(*sorted(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    loaded = told.stdout.split()
    assert not {
        "numpy",
        "pyarrow",
        "penstock.engine.model",
        "penstock.engine.runtime",
    }.intersection(loaded)


def test_modules_of_a_package_are_found_as_with_pyflink_which_imports_them_all():
    program = (
        "import penstock.datastream as ds, penstock.common as common;"
        "print(ds.window.TumblingEventTimeWindows.__name__, ds.functions.MapFunction.__name__, "
        "common.typeinfo.Types.__name__, hasattr(ds, 'no_such_module'))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == ["TumblingEventTimeWindows", "MapFunction", "Types", "False"]


def test_what_a_program_writes_to_and_reads_from_files_can_be_guessed():
    from penstock.datastream.connectors import FileSource, StreamFormat
    from penstock.datastream.formats import CsvReaderFormat, ParquetBulkWriters

    assert {FileSource, StreamFormat, CsvReaderFormat, ParquetBulkWriters}


def test_penstock_offers_the_five_names_with_which_programs_begin():
    import penstock

    five = ["MiniCluster", "StreamExecutionEnvironment", "Types", "WatermarkStrategy", "col"]
    assert dir(penstock) == five
    for name in five:
        assert getattr(penstock, name).__module__.startswith("penstock.")
    with pytest.raises(AttributeError, match="'penstock' has no attribute 'Nothing'"):
        _ = penstock.Nothing


def test_penstock_alone_imports_none_of_its_houses():
    code = (
        "import sys, penstock; print(*[one for one in sys.modules if one.startswith('penstock')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["penstock"]
