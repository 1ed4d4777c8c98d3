"""The conformance kit: what a source or a sink guarantees, found out by stopping it between any two steps."""

from penstock.testing.conformance.report import Conformance, Finding
from penstock.testing.conformance.sinks import check_sink
from penstock.testing.conformance.sources import check_source

__all__ = ["Conformance", "Finding", "check_sink", "check_source"]
