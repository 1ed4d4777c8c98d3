"""A job as bytes, and who can open them."""

from dataclasses import replace

import pytest

from penstock.engine.hosting.jobmanager.ha import packed_job
from penstock.engine.hosting.jobmanager.ha.packed_job import (
    SubmittedJob,
    make_importable,
    pack,
    unpack_job,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import JobId
from penstock.engine.model.program import ProgramSettings


def job() -> SubmittedJob:
    return SubmittedJob(JobGraph(JobId("1" * 32), "packed"), (), ProgramSettings(), b"")


def test_a_job_is_opened_as_it_was_packed():
    found = unpack_job(pack(job()), make_importable)
    assert found.graph.name == "packed"
    assert found.client_timeout_ms is None
    collected = replace(job(), client_timeout_ms=500)
    assert unpack_job(pack(collected), make_importable).client_timeout_ms == 500
    assert found.client_timeout_ms is None
    collected = replace(job(), client_timeout_ms=500)
    assert unpack_job(pack(collected), make_importable).client_timeout_ms == 500
    assert found.program == job().program
    assert found.classes == ()


def test_the_classes_of_the_main_script_travel_with_its_job():
    own = type("Order", (), {"__module__": "__main__"})
    assert unpack_job(pack(replace(job(), classes=(own,))), make_importable).classes == (own,)


def test_a_job_of_another_python_is_refused_before_its_functions_are_opened(monkeypatch):
    """Bytecode of another version ends the process."""
    data = pack(job())
    here = packed_job.PYTHON
    monkeypatch.setattr(packed_job, "PYTHON", (3, 99))

    def opens(*_given):
        raise AssertionError("its functions were opened")

    with pytest.raises(ConfigurationError, match=rf"by Python {here[0]}\.{here[1]}.*Python 3\.99"):
        unpack_job(data, opens)
