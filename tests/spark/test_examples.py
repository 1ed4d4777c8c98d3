"""The example that goes from Spark SQL to a function and back. Expectation: plain Python over the same payments."""

import importlib.util
import sys
import zlib
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
SHOPS = ("bakery", "books", "garden", "music", "toys")


def drawn(what, number):
    return zlib.crc32(f"{what}{number}".encode())


def expected(payments=20_000, cards=20):
    small_until = {}
    found = defaultdict(list)
    for number in range(payments):  # they come in the order of their times, one a second
        card, shop, amount = (
            drawn(what, number) % most
            for what, most in (("card", cards), ("shop", 5), ("amount", 500))
        )
        if amount > 480 and small_until.get(card, -1) > number:
            found[SHOPS[shop]].append(amount)
        if amount < 20:
            small_until[card] = number + 60
    lines = [(-len(all_), shop, Decimal(sum(all_))) for shop, all_ in found.items()]
    return [f"{-count}\t{amount:.2f}\t{shop}" for count, shop, amount in sorted(lines)]


@pytest.mark.parametrize("mode", [(), pytest.param(("--streaming",), marks=pytest.mark.long)])
def test_sql_then_a_function_then_sql(spark, capsys, mode):
    path = Path(__file__).parents[2] / "examples" / "suspicious_payments.py"
    spec = importlib.util.spec_from_file_location("suspicious_payments", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what it ships finds it there
    spec.loader.exec_module(module)
    module.main(list(mode))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert lines == expected()
