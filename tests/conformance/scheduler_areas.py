"""Area -> adapter, for the scheduler cases. Each takes `given` and returns what `expect` speaks
of."""

from collections.abc import Callable
from typing import Any

from tests.conformance import scheduler_elastic as elastic
from tests.conformance import scheduler_graphs as graphs
from tests.conformance import scheduler_slots as slots
from tests.conformance import scheduler_states as states

AREAS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "topology": graphs.topology,
    "edge_groups": graphs.edge_groups,
    "region_computation": graphs.region_computation,
    "region_scheduling": graphs.region_scheduling,
    "failover_region": graphs.failover_region,
    "slot_sharing_local_input": graphs.slot_sharing,
    "slot_sharing_task_balanced": graphs.slot_sharing,
    "pointwise_mapping": graphs.pointwise_mapping,
    "resource_profile": slots.resource_profile,
    "slot_selection": slots.slot_selection,
    "candidate_score": slots.score,
    "bulk_fulfillability": slots.bulk_fulfillability,
    "request_slot_matching": slots.request_slot_matching,
    "preferred_locations": slots.preferred_locations,
    "slot_pool": slots.slot_pool,
    "resource_manager_allocation": slots.resource_manager_allocation,
    "execution_state": states.execution_state,
    "job_status": states.job_status,
    "job_status_class": states.job_status_class,
    "execution_state_class": states.execution_state_class,
    "result_partition_type": states.result_partition_type,
    "operator_chaining": states.operator_chaining,
    "max_parallelism": states.max_parallelism,
    "config_default": states.config_default,
    "restart_backoff": states.restart_backoff,
    "adaptive_parallelism": elastic.adaptive_parallelism,
    "adaptive_batch_parallelism": elastic.adaptive_batch_parallelism,
}
