"""One source after the other.

Source: pyflink.datastream.connectors.hybrid_source; differs: there is none.
"""

from penstock.common.absent import absent

_UNION = "Read the bounded source and the unbounded one as two streams and union() them; or write a subclass of penstock.datastream.connectors.Source whose enumerator hands out the splits of the first before those of the second."

__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(("HybridSource", "HybridSourceBuilder"), _UNION),
    },
)
