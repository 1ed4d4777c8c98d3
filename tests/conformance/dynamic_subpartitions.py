"""What Flink's adaptive batch scheduler reads: a reference model, for Penstock decides the parallelism before it deploys.

Source: Flink VertexInputInfoComputationUtils.
"""

from penstock.engine.model.errors import GraphError


def dynamic_subpartitions(
    consumer: int, consumers_of_range: int, subpartitions: int, *, is_broadcast: bool
) -> tuple[int, int]:
    """Range of subpartitions where their number was fixed before the consumers were known.

    Raises: GraphError: more consumers than subpartitions.
    """
    if is_broadcast:
        return 0, subpartitions - 1
    if consumers_of_range > subpartitions:
        raise GraphError(
            f"{consumers_of_range} consumers cannot share {subpartitions} subpartitions: each "
            "needs one at least. Lower the parallelism of the consumer."
        )
    place = consumer % consumers_of_range
    first = place * subpartitions // consumers_of_range
    return first, (place + 1) * subpartitions // consumers_of_range - 1
