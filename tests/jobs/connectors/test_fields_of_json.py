"""Jobs that read some fields of JSON lines: results, errors and dead letters are those of whole records, but for fields that nobody reads."""

import json

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.datastream import OutputTag, RuntimeExecutionMode
from penstock.engine.model.errors import JobExecutionError
from penstock.formats import json_columns
from penstock.formats import json_columns as records
from penstock.testing import MiniCluster
from tests.tools.programs.environments import collected, minicluster_environment

BID = Types.ROW_NAMED(
    ["auction", "price", "channel", "at"],
    [Types.LONG(), Types.DOUBLE(), Types.STRING(), Types.LONG()],
)
COUNT = 3000
ALL_FIELDS = {"penstock.task.parse-unread-fields": "true"}
BAD = OutputTag("bad")


pytestmark = pytest.mark.usefixtures("parser")


@pytest.fixture(params=["msgspec", "pyarrow"])
def parser(request, monkeypatch):
    if request.param == "pyarrow":
        monkeypatch.setattr(records, "msgspec_module", lambda: None)
    return request.param


@pytest.fixture
def batches(monkeypatch):
    """The classes of batches that readers of fields have made."""
    made = []
    batch = json_columns.FieldsReader.batch

    def noted(self, *args, **options):
        found = batch(self, *args, **options)
        made.append(type(found).__name__)
        return found

    monkeypatch.setattr(json_columns.FieldsReader, "batch", noted)
    return made


def line(number):
    return {"auction": number % 7, "price": number / 4, "channel": f"c{number % 3}", "at": number}


def bids_of(tmp_path, *further, settings=None, mode=RuntimeExecutionMode.STREAMING):
    path = tmp_path / "bids"
    lines = [*(json.dumps(line(number)) for number in range(COUNT)), *further]
    path.write_text("".join(f"{one}\n" for one in lines))
    env = minicluster_environment(MiniCluster(1, 1), settings).set_parallelism(1)
    env.set_runtime_mode(mode)
    source = FileSource.for_record_stream_format(StreamFormat.json_lines_format(BID), str(path))
    return env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "bids")


def with_loop(bid):
    total = 0
    for letter in bid.channel:
        total += ord(letter)
    return total


FUNCTIONS = {
    "computes": lambda bid: (bid.auction, bid.price * 2),
    "loops": with_loop,
    "returns the record": lambda bid: bid,
    "unpacks": lambda bid: [value for value in bid],  # noqa: C416
}


@pytest.mark.parametrize("mode", list(RuntimeExecutionMode)[:2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_whole_records(tmp_path, name, mode):
    from penstock.common import Row

    function = FUNCTIONS[name]
    found = collected(bids_of(tmp_path, mode=mode).map(function))
    assert found == [function(Row(**line(number))) for number in range(COUNT)]


def test_functions_behind_filters_read_what_they_need(tmp_path, batches, parser):
    kept = bids_of(tmp_path).filter(lambda bid: bid.auction == 3).filter(lambda bid: bid.at > 9)
    expected = [one for one in map(line, range(COUNT)) if one["auction"] == 3 and one["at"] > 9]
    assert collected(kept.map(lambda bid: bid.channel)) == [one["channel"] for one in expected]
    wanted = "DecodedColumns" if parser == "msgspec" else "ParsedColumns"
    assert set(batches) == {wanted}


def test_records_that_go_to_another_task_are_read_as_before(tmp_path, batches):
    counts = bids_of(tmp_path).key_by(lambda bid: bid.auction).map(lambda bid: bid.at)
    assert sorted(collected(counts)) == list(range(COUNT))
    assert batches == []


MISTYPED = '{"auction": 1, "price": {}, "channel": "c", "at": 5}'


def test_a_field_that_nobody_reads_is_not_checked(tmp_path):
    read = bids_of(tmp_path, MISTYPED).map(lambda bid: bid.at)
    assert collected(read) == [*range(COUNT), 5]


@pytest.mark.parametrize(
    ("settings", "function"),
    [(ALL_FIELDS, lambda bid: bid.at), ({}, lambda bid: bid.price), ({}, lambda bid: bid)],
    ids=["all fields are to be read", "it is read", "the record is used"],
)
def test_a_field_of_another_type_is_an_error_otherwise(tmp_path, settings, function):
    with pytest.raises(JobExecutionError, match="bids: a line cannot be read as JSON.*'price'"):
        collected(bids_of(tmp_path, MISTYPED, settings=settings).map(function))


@pytest.mark.parametrize("bad", ['{"at": 1', '{"at": "x"}', '{"z": tru, "at": 1}', "null"])
def test_malformed_lines_become_the_same_dead_letters(tmp_path, bad):
    def letters(settings):
        rows = bids_of(tmp_path, bad, MISTYPED, bad, settings=settings).on_error(BAD)
        rows.map(lambda bid: bid.at).print()
        found = rows.get_side_output(BAD)
        return collected(found.map(lambda one: (one.record, one.error_class, one.error_text)))

    of_fields, of_all = letters({}), letters(ALL_FIELDS)
    assert [one[0] for one in of_fields] == [bad, bad]
    assert [one[0] for one in of_all] == [bad, MISTYPED, bad]
    assert of_fields == [of_all[0], of_all[2]]


def test_a_record_at_which_a_function_raises_is_shown_whole(tmp_path):
    rows = bids_of(tmp_path, '{"auction": 0, "price": [], "channel": "z", "at": 1}')
    divided = rows.map(lambda bid: 1 // (bid.at - 2999) if bid.channel == "c2" else 0)
    failed = divided.on_error(BAD)
    failed.print()
    letters = failed.get_side_output(BAD)
    assert collected(letters.map(lambda one: repr(one.record))) == [
        "Row(auction=3, price=749.75, channel='c2', at=2999)"
    ]


def test_a_field_that_nobody_reads_is_none_where_the_record_is_shown(tmp_path):
    rows = bids_of(tmp_path, '{"auction": 0, "price": [], "channel": "z", "at": 1}')
    failed = rows.map(lambda bid: 1 // (bid.channel != "z")).on_error(BAD)
    failed.print()
    letters = failed.get_side_output(BAD)
    assert collected(letters.map(lambda one: repr(one.record))) == [
        "Row(auction=0, price=None, channel='z', at=1)"
    ]


def test_numbers_as_texts_are_numbers(tmp_path):
    odd = ['{"at": "17"}', '{"at": 18.0}', '{"at": 1e2}']
    assert collected(bids_of(tmp_path, *odd).map(lambda bid: bid.at))[COUNT:] == [17, 18, 100]
