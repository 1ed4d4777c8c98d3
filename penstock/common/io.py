"""InputFormat: what `env.create_input` reads.

Source: pyflink.common.io; differs: an input format makes a Source, and names no Java class.
"""

from __future__ import annotations

from penstock.engine.runtime.sources.contract import Source


class InputFormat:
    """Something that can be read. For a format of your own, prefer a `penstock.datastream.connectors.Source`."""

    def create_source(self) -> Source:
        """Return the Source that reads it. Not in PyFlink."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define create_source. Define it, or use "
            "env.from_source with FileSource or a subclass of "
            "penstock.datastream.connectors.Source."
        )
