"""A log file over REST may be asked for in parts, as HTTP has it. Flink gives whole files only."""

import urllib.error
import urllib.request

import pytest

from penstock.engine.hosting.reporting.logs.driver import log_folder
from penstock.engine.model.messages import ReadLog


def asked(client, span=None):
    """(status, headers, bytes) of the driver's log."""
    headers = {} if span is None else {"Range": span}
    request = urllib.request.Request(client.address + "/jobmanager/log", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def of_log(begin, end):
    return log_folder().read(ReadLog(offset=begin, length=end - begin)).data


@pytest.mark.parametrize(
    ("span", "begin", "end"), [("bytes=0-9", 0, 10), ("bytes=7-7", 7, 8), ("bytes=20-99", 20, 100)]
)
def test_a_part_is_what_stands_there(client, job, span, begin, end):
    status, headers, data = asked(client, span)
    assert (status, data) == (206, of_log(begin, end))
    assert headers["Content-Range"].startswith(f"bytes {begin}-{end - 1}/")


def test_a_part_may_be_the_end_of_the_file_or_all_of_it(client, job):
    _, headers, data = asked(client, "bytes=-25")
    span, _, size = headers["Content-Range"].removeprefix("bytes ").partition("/")
    begin, end = int(size) - 25, int(size)
    assert span == f"{begin}-{end - 1}"
    assert data == of_log(begin, end)
    _, headers, data = asked(client, f"bytes={begin}-")
    assert headers["Content-Range"].startswith(f"bytes {begin}-")
    assert data.startswith(of_log(begin, end))
    _, _, whole = asked(client, "bytes=-999999999")
    assert whole.startswith(of_log(0, 100))


def test_what_lies_behind_the_end_is_told_with_the_size(client, job):
    status, headers, _ = asked(client, "bytes=999999999-")
    assert status == 416
    assert headers["Content-Range"].startswith("bytes */")


@pytest.mark.parametrize("span", ["bytes=-", "lines=1-2", "bytes=1-2,5-6", "bytes=x-", "bytes=5-2"])
def test_what_is_not_understood_is_answered_with_the_whole_file(client, job, span):
    """As RFC 9110 asks for."""
    status, headers, data = asked(client, span)
    assert (status, headers["Content-Range"]) == (200, None)
    assert data.startswith(of_log(0, 100))


def test_a_whole_file_tells_its_name(client, job):
    status, headers, data = asked(client)
    assert (status, data[:50]) == (200, of_log(0, 50))
    assert "penstock-jobmanager-" in headers["Content-Disposition"]
    assert headers["Content-Range"] is None
