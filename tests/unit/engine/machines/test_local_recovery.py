"""Slots of local recovery: whose they are, until when."""

from penstock.engine.machines.failover import FixedDelayRestart
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.model.states import ExecutionState as S
from tests.tools.machines.job_bench import Bench
from tests.tools.machines.job_graphs import figure


def test_slots_that_tasks_had_are_reserved_until_they_finish() -> None:
    settings = JobSettings(is_local_recovery=True, make_backoff=lambda: FixedDelayRestart(9, 1000))
    bench = Bench(figure(), settings)
    bench.start()
    reserved = bench.job.state.deployer.reserved

    def agrees() -> set[str]:
        had = {
            vertex.execution.allocation_id or vertex.last_allocation_id
            for vertex in bench.job.state.graph.vertices
            if vertex.state is not S.FINISHED
        }
        all_slots = [f"tm{number}/{slot}" for number in range(1, 5) for slot in range(4)]
        assert {slot for slot in all_slots if slot in reserved} == had - {None}
        return had

    agrees()
    for name in ("tm1", "tm2", "tm3"):
        bench.offer(name, 4)
        bench.run_all()
        assert len(agrees() - {None}) == 4
        bench.lose(name)
        agrees()
        bench.confirm_cancels()
        bench.fire("restart")
        agrees()
    bench.offer("tm4", 4)
    bench.run_all()
    before = agrees()
    bench.finish("Source[3]", "Map[3]")
    assert agrees() < before
