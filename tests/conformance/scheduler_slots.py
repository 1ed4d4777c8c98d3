"""Areas about slots: profiles, selection, matching, pool, resource manager, preferred locations."""

from dataclasses import dataclass
from typing import Any

from penstock.engine.machines.resources.resource_allocation import (
    AllocationRules,
    Worker,
    WorkerSpec,
    plan_allocation,
)
from penstock.engine.machines.scheduling.bulks import is_fulfillable
from penstock.engine.machines.slots.resource_profile import (
    ANY,
    UNKNOWN,
    ZERO,
    ResourceProfile,
    profile_of,
)
from penstock.engine.machines.slots.shared_slots import preferred_by_inputs
from penstock.engine.machines.slots.slot_matching import (
    Matching,
    SlotProfile,
    SlotRequest,
    SlotSelection,
    match_requests,
)
from penstock.engine.machines.slots.slot_pool import SlotPool
from penstock.engine.model.ids import AllocationId, ResourceId, SlotRequestId, TaskManagerLocation
from penstock.engine.model.messages import SlotOffer
from tests.tools.machines.slot_scan import chosen

_WITHOUT_PLACE = (
    "un", "not_", "no_", "without", "pending", "created", "missing", "failed", "ignore",
    "same", "bulk", "later",
)  # fmt: skip
_NAMED = {"ANY": ANY, "UNKNOWN": UNKNOWN, "ZERO": ZERO}


@dataclass(frozen=True)
class Slot:
    allocation_id: AllocationId
    resource_id: ResourceId
    host: str
    profile: ResourceProfile


def profile(given: Any) -> ResourceProfile:
    return _NAMED[given] if isinstance(given, str) else profile_of(given)


def text_of(found: ResourceProfile) -> Any:
    for name, constant in _NAMED.items():
        if found == constant:
            return name
    return {name: float(amount) for name, amount in found.as_dict().items()}


def slots_of(given: list[dict[str, Any]]) -> list[Slot]:
    return [Slot(s["id"], s["tm"], s["host"], profile(s["profile"])) for s in given]


def resource_profile(given: dict[str, Any]) -> dict[str, Any]:
    a, b = profile(given["a"]), profile(given["b"])
    return {
        "a_isMatching_b": _or_error(lambda: a.is_matching(b)),
        "a_allFieldsNoLessThan_b": _or_error(lambda: a.has_at_least(b)),
        "merge": _or_error(lambda: text_of(a.merge(b))),
        "a_minus_b": _or_error(lambda: text_of(a.subtract(b))),
    }


def _or_error(call: Any) -> Any:
    try:
        return call()
    except Exception as error:
        return error


def slot_selection(given: dict[str, Any]) -> dict[str, Any]:
    strategy = given["strategy"]
    selection = SlotSelection(
        is_spreading=strategy.endswith("evenly"), is_previous_first=strategy.startswith("previous")
    )
    wanted = SlotProfile(
        profile(given.get("request", "UNKNOWN")),
        tuple((tm, host) for tm, host in given.get("preferred_locations", ())),
        frozenset(given.get("preferred_allocations", ())),
        frozenset(given.get("reserved_allocations", ())),
    )
    utilization = given.get("utilization", {})
    best = chosen(
        selection, slots_of(given["free_slots"]), wanted, lambda tm: utilization.get(tm, 0.0)
    )
    if best is None:
        return {"slot": None, "locality": None}
    return {"slot": best[0].allocation_id, "locality": str(best[1])}


def score(given: dict[str, Any]) -> dict[str, Any]:
    selection = SlotSelection(is_spreading=given["strategy"] == "evenly")
    weights = given["local_weight"], given["host_weight"]
    return {"score": selection.score(*weights, given.get("tm_utilization", 0.0))}


def bulk_fulfillability(given: dict[str, Any]) -> dict[str, Any]:
    pending = [profile(p) for p in given.get("pending", ())]
    slots = [
        slot
        for slot in given["slots"]
        if not any(value is True and "indefinite" in key.lower() for key, value in slot.items())
    ]
    found = is_fulfillable(pending, slots_of(slots), set(given.get("fulfilled", ())))
    return {"fulfillable": found}


def _matching(name: str) -> Matching:
    """simple, tasks, and either of them behind a preference for previous allocations."""
    word = name.lower()
    rest = "tasks" if "task" in word or "balanced" in word else "simple"
    return Matching(f"preferred+{rest}" if "pre" in word else rest)


def request_slot_matching(given: dict[str, Any]) -> dict[str, Any]:
    requests = [
        SlotRequest(
            r["id"], profile(r["profile"]), r["load"], frozenset(r.get("preferred_allocations", ()))
        )
        for r in given["requests"]
    ]
    load = dict(given.get("tm_load", {}))
    matching = _matching(given["strategy"])
    matches = match_requests(matching, slots_of(given["slots"]), requests, load)
    total = {s["tm"]: load.get(s["tm"], 0) for s in given["slots"]} | load
    for request in requests:
        if request.request_id in matches:
            total[matches[request.request_id].resource_id] += request.load
    return {
        "matches": {request: slot.allocation_id for request, slot in matches.items()},
        "num_matched": len(matches),
        "tm_of_request": {request: slot.resource_id for request, slot in matches.items()},
        "final_tm_loads_sorted": sorted(total.values()),
    }


def preferred_locations(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("state_location"):
        return {"preferred": [given["state_location"]]}
    inputs = []
    for entry in given.get("inputs", ()):
        places = [_place(producer) for producer in entry.get("producers", ())]
        sizes = [size for size in entry.values() if isinstance(size, int)]
        inputs.append((sizes[0] if sizes else 1, lambda places=places: places))
    return {"preferred": preferred_by_inputs(inputs)}


def _place(producer: Any) -> str | None:
    """Producers that are placed in the same call, or not placed yet, have no known place."""
    if not isinstance(producer, dict):
        return producer
    facts = {key.lower(): value for key, value in producer.items() if key != "tm"}
    return producer.get("tm") if all(_is_placed(*fact) for fact in facts.items()) else None


def _is_placed(key: str, value: Any) -> bool:
    """Whether a fact such as `pending: true`, `known: false`, `state: CREATED` leaves a producer its place."""
    if isinstance(value, bool):
        return value is not any(word in key for word in _WITHOUT_PLACE)
    text = str(value).lower()
    return value is not None and not any(word in text for word in (*_WITHOUT_PLACE, "no"))


def slot_pool(given: dict[str, Any]) -> dict[str, Any]:
    pool = SlotPool(idle_timeout_ms=given.get("idle_timeout_ms", 50_000))
    location = TaskManagerLocation(ResourceId("tm"), "host", 0)
    if given.get("tm_registered", True):
        pool.register_task_manager(location.resource_id)
    pending = given.get("pending", [])
    failed = set()
    for name, allocation in given.get("fulfilled", {}).items():
        pool.request_new(SlotRequest(SlotRequestId(name)))
        pool.offer(location, [SlotOffer(allocation, 0)], 0)
        pool.serve_pending()
    for allocation in given.get("held", ()):
        pool.required[UNKNOWN] += 1
        pool.offer(location, [SlotOffer(allocation, 0)], 0)
    for allocation in given.get("held_free", ()):
        since = given.get("free_since_ms", {}).get(allocation, 0)
        pool.offer(location, [SlotOffer(allocation, 0)], since, is_any_welcome=True)
        _make_ordinary(pool, allocation)
    for name in pending:
        pool.request_new(SlotRequest(SlotRequestId(name)))
    missing = given.get("required", pool.total_required) - pool.total_required
    pool.required[UNKNOWN] += missing
    answer = pool.offer(
        location,
        [SlotOffer(allocation, 0) for allocation in given.get("offers", ())],
        given.get("now_ms", 0),
        is_any_welcome=bool(given.get("job_restarting")),
    )
    served = [request.request_id for request, _ in pool.serve_pending()]
    release = given.get("release")
    if release is not None and pool.release(release, given.get("now_ms", 0)):
        failed.add(release)
    served += [request.request_id for request, _ in pool.serve_pending()]
    idle = pool.release_idle(given.get("now_ms", 0))
    state = "failed" if failed else "completed" if served else "pending"
    return {
        "accepted": list(answer.accepted),
        "num_released": len(idle),
        "required_after": pool.total_required,
        "free_after": [slot.allocation_id for slot in pool.free],
        "request_future": state,
    }


def _make_ordinary(pool: SlotPool, allocation: str) -> None:
    """A free slot that once met a requirement which is gone by now."""
    slot = pool.slots[AllocationId(allocation)]
    request = SlotRequest(SlotRequestId(f"once-{allocation}"))
    since = slot.free_since_ms or 0
    only = SlotProfile(preferred_allocations=frozenset([slot.allocation_id]))
    free = pool.free_slots
    former, free.selection = free.selection, SlotSelection(is_previous_first=True)
    pool.allocate(request, only)
    free.selection = former
    pool.release(request.request_id, since)


def resource_manager_allocation(given: dict[str, Any]) -> dict[str, Any]:
    slots = given.get("worker_slots", 1)
    total = profile(given["worker"]) if "worker" in given else profile_of({"cpu": slots})
    request = profile(given.get("request", "UNKNOWN"))
    one = profile_of({n: float(a) / slots for n, a in total.as_dict().items()})
    spec = WorkerSpec(total, one)
    free = given.get("registered_free_slots", 0)
    registered = [Worker("here", one.multiply(free), one.multiply(free), one)] if free else []
    pending = [spec.make(f"coming-{i}") for i in range(given.get("pending_workers", 0))]
    rules = AllocationRules(redundant_workers=given.get("redundant_workers", 0))
    plan = plan_allocation(
        {request: given.get("missing_slots", 1)}, registered, pending, spec, rules
    )
    return {
        "allocated_on_registered": len(plan.on_registered),
        "new_workers": len(plan.new_workers),
        "unfulfillable": plan.is_unfulfillable,
    }
