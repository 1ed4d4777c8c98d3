"""The options as objects: none is lost, none is asked for by a string, and the reference page shows them."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.engine.model.config import Settings
from penstock.engine.model.options.catalogue import (
    FLINK_NAMES,
    FORMER_KEYS,
    GROUPS,
    OPTIONS,
    check_spelling,
    documentation,
    find_option,
    nearest,
)
from penstock.engine.model.options.checkpoints import CheckpointOptions
from penstock.engine.model.options.option import OptionGroup
from scripts import option_pages

PACKAGE = Path(penstock.__file__).parent
TABLE = json.loads((Path(__file__).parent / "option_table.json").read_text(encoding="utf-8"))
# By which name a kind stands in the table.
KINDS = {
    "duration": "duration", "fine duration": "fine duration", "size": "memory", "whole number": "int",
    "number": "float", "true or false": "bool", "text": "str", "list of texts": "list",
    "pairs of texts": "map",
}  # fmt: skip
EXPORTER = {
    "exporter.endpoint": ("str", None), "exporter.protocol": ("str", "gRPC"),
    "exporter.timeout": ("duration", "10 s"), "exporter.compression": ("str", "none"),
    "service.name": ("str", None), "service.version": ("str", None),
}  # fmt: skip
REPORTER = {
    "reporters": ("list", None), "reporter.<name>.factory.class": ("str", None),
    "reporter.<name>.scope.variables.additional": ("map", None),
    "reporter.<name>.filter.includes": ("list", "*:*"),
    "reporter.<name>.filter.excludes": ("list", None),
}  # fmt: skip
# The table says that these have no effect. AdaptiveBatch reads them.
ADDED = {
    "kubernetes.namespace": ("str", None),
    "penstock.console.live": ("bool", "false"),
    "penstock.driver.begins-anew": ("bool", "false"),
    "client.heartbeat.interval": ("duration", "30 s"),
    "client.heartbeat.timeout": ("duration", "3 min"),
    "penstock.task.functions-as-columns": ("bool", "true"),
    "penstock.task.parse-unread-fields": ("bool", "false"),
    "execution.target": ("str", None),
    "execution.attached": ("bool", "true"),
    "execution.shutdown-on-attached-exit": ("bool", "false"),
    "cleanup-strategy": ("str", "exponential-delay"),
    "cleanup-strategy.fixed-delay.attempts": ("int", "2147483647"),
    "cleanup-strategy.fixed-delay.delay": ("duration", "1 min"),
    "cleanup-strategy.exponential-delay.attempts": ("int", "2147483647"),
    "cleanup-strategy.exponential-delay.initial-backoff": ("duration", "1 s"),
    "cleanup-strategy.exponential-delay.max-backoff": ("duration", "1 h"),
    "penstock.rest.client.token": ("str", None),
    "penstock.rest.client.certificates": ("str", None),
    "penstock.cluster.job-isolation": ("bool", "false"),
    "penstock.exchange.in-flight-time": ("duration", "250 ms"),
    "penstock.state-recovery.allow-int-to-double": ("bool", "false"),
    "penstock.console.line-interval": ("duration", "10 s"),
    "security.ssl.internal.enabled": ("bool", None),
    "penstock.rest.enabled": ("bool", None),
    "security.ssl.rest.enabled": ("bool", "false"),
    "security.ssl.rest.keystore": ("str", None),
    "security.ssl.rest.key-password": ("str", None),
    "penstock.rest.token": ("str", "others"),
    "penstock.web.switches": ("str", None),
    "rest.address": ("str", None),
    "rest.async.store-duration": ("duration", "5 min"),
    "rest.bind-address": ("str", "localhost"),
    "rest.bind-port": ("str", "8081-8181"),
    "rest.port": ("int", "8081"),
    "rest.server.max-content-length": ("memory", "104857600"),
    "web.refresh-interval": ("duration", "3 s"),
    "web.cancel.enable": ("bool", "true"),
    "web.rescale.enable": ("bool", "true"),
    "jobstore.expiration-time": ("duration", "3600 s"),
    "jobstore.max-capacity": ("int", None),
    "jobmanager.archive.fs.dir": ("str", None),
    "historyserver.archive.fs.dir": ("str", None),
    "historyserver.archive.fs.refresh-interval": ("duration", "10 s"),
    "historyserver.archive.retained-jobs": ("int", "-1"),
    "historyserver.web.address": ("str", "localhost"),
    "historyserver.web.port": ("int", "8082"),
    "historyserver.web.refresh-interval": ("duration", "10 s"),
    "env.log.dir": ("str", None),
    "env.log.level": ("str", "INFO"),
    "env.log.max": ("int", "10"),
    "penstock.log.format": ("str", "text"),
    "penstock.log.max-file-size": ("memory", "100 mb"),
    "penstock.log.slow-checkpoint": ("duration", "30 s"),
    "taskmanager.log.path": ("str", None),
    "cluster.thread-dump.stacktrace-max-depth": ("int", "50"),
    "penstock.task.fail-without-progress": ("bool", "false"),
    "penstock.task.progress-timeout": ("duration", "10 s"),
    "metrics.fetcher.update-interval": ("duration", "10 s"),
    "metrics.system-resource": ("bool", "false"),
    "metrics.system-resource-probing-interval": ("duration", "5 s"),
    "metrics.job.status.enable": ("list", "CURRENT_TIME"),
    "metrics.latency.history-size": ("int", "128"),
    "taskmanager.network.detailed-metrics": ("bool", "false"),
    "metrics.scope.delimiter": ("str", "."),
    "metrics.scope.jm": ("str", "<host>.jobmanager"),
    "metrics.scope.jm-job": ("str", "<host>.jobmanager.<job_name>"),
    "metrics.scope.jm-operator": ("str", "<host>.jobmanager.<job_name>.<operator_name>"),
    "metrics.scope.tm": ("str", "<host>.taskmanager.<tm_id>"),
    "metrics.scope.tm-job": ("str", "<host>.taskmanager.<tm_id>.<job_name>"),
    "metrics.scope.task": (
        "str", "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>",
    ),
    "metrics.scope.operator": (
        "str", "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
    ),
    "metrics.reporters": ("list", None),
    "metrics.reporter.<name>.factory.class": ("str", None),
    "metrics.reporter.<name>.interval": ("duration", "10 s"),
    "metrics.reporter.<name>.scope.delimiter": ("str", "."),
    "metrics.reporter.<name>.scope.variables.excludes": ("list", "."),
    "metrics.reporter.<name>.scope.variables.additional": ("map", None),
    "metrics.reporter.<name>.filter.includes": ("list", "*:*:*"),
    "metrics.reporter.<name>.filter.excludes": ("list", None),
    "metrics.reporter.<name>.port": ("str", "9249"),
    "metrics.reporter.<name>.filterLabelValueCharacters": ("bool", "true"),
    "metrics.reporter.<name>.allowList": ("list", None),
    "metrics.reporter.<name>.hostUrl": ("str", None),
    "metrics.reporter.<name>.jobName": ("str", None),
    "metrics.reporter.<name>.randomJobNameSuffix": ("bool", "true"),
    "metrics.reporter.<name>.deleteOnShutdown": ("bool", "true"),
    "metrics.reporter.<name>.groupingKey": ("str", None),
    "metrics.reporter.<name>.username": ("str", None),
    "metrics.reporter.<name>.password": ("str", None),
    "penstock.metrics.prometheus.bind-address": ("str", "localhost"),
    **{
        f"{kind}.reporter.<name>.{key}": of
        for kind in ("metrics", "traces", "events")
        for key, of in EXPORTER.items()
    },
    **{
        f"{kind}.{key}": of
        for kind in ("traces", "events")
        for key, of in REPORTER.items()
    },
    "penstock.elastic.profile": ("str", "penstock"),
    "job.autoscaler.enabled": ("bool", "false"),
    "job.autoscaler.scaling.enabled": ("bool", "true"),
    "job.autoscaler.metrics.window": ("duration", "15 min"),
    "job.autoscaler.stabilization.interval": ("duration", "5 min"),
    "job.autoscaler.interval": ("duration", "10 s"),
    "job.autoscaler.utilization.target": ("float", "0.7"),
    "job.autoscaler.utilization.max": ("float", None),
    "job.autoscaler.utilization.min": ("float", None),
    "job.autoscaler.target.utilization.boundary": ("float", "0.3"),
    "job.autoscaler.scale-down.interval": ("duration", "1 h"),
    "job.autoscaler.vertex.min-parallelism": ("int", "1"),
    "job.autoscaler.vertex.max-parallelism": ("int", "200"),
    "job.autoscaler.vertex.exclude.ids": ("list", None),
    "job.autoscaler.excluded.periods": ("str", None),
    "job.autoscaler.scale-down.max-factor": ("float", "0.6"),
    "job.autoscaler.scale-up.max-factor": ("float", "100000"),
    "job.autoscaler.catch-up.duration": ("duration", "30 min"),
    "job.autoscaler.restart.time": ("duration", "5 min"),
    "job.autoscaler.restart.time-tracking.enabled": ("bool", "false"),
    "job.autoscaler.restart.time-tracking.limit": ("duration", "15 min"),
    "job.autoscaler.backlog-processing.lag-threshold": ("duration", "5 min"),
    "job.autoscaler.observed-true-processing-rate.lag-threshold": ("duration", "30 s"),
    "job.autoscaler.observed-true-processing-rate.switch-threshold": ("float", "0.15"),
    "job.autoscaler.observed-true-processing-rate.min-observations": ("int", "2"),
    "job.autoscaler.scaling.effectiveness.detection.enabled": ("bool", "false"),
    "job.autoscaler.scaling.effectiveness.threshold": ("float", "0.1"),
    "job.autoscaler.metrics.busy-time.aggregator": ("str", "MAX"),
    "job.autoscaler.memory.gc-pressure.threshold": ("float", "1.0"),
    "job.autoscaler.memory.heap-usage.threshold": ("float", "1.0"),
    "job.autoscaler.history.max.count": ("int", "3"),
    "job.autoscaler.history.max.age": ("duration", "24 h"),
    "job.autoscaler.scaling.event.interval": ("duration", "30 min"),
    "job.autoscaler.scaling.parallelism-alignment.mode": ("str", "BALANCED"),
    "job.autoscaler.quota.cpu": ("float", None),
    "job.autoscaler.quota.memory": ("memory", None),
    "job.autoscaler.observed-scalability.enabled": ("bool", "false"),
    "job.autoscaler.observed-scalability.min-observations": ("int", "3"),
    "job.autoscaler.observed-scalability.coefficient-min": ("float", "0.5"),
    "penstock.autoscaler.tolerated-ineffective-scalings": ("int", "0"),
    "penstock.autoscaler.alignment.max-added": ("float", "inf"),
    "penstock.autoscaler.at-most-partitions": ("bool", "false"),
    "job.autoscaler.memory.tuning.enabled": ("bool", "false"),
    "job.autoscaler.memory.tuning.overhead": ("float", "0.2"),
    "job.autoscaler.memory.tuning.maximize-managed-memory": ("bool", "false"),
    "job.autoscaler.memory.tuning.scale-down-compensation.enabled": ("bool", "true"),
    "metrics.reporter.<name>.batch.size": ("int", "0"),
    "metrics.reporter.<name>.export-completion-timeout-millis": ("int", "300000"),
    "traces.checkpoint.span-detail-level": ("str", "SPAN_PER_CHECKPOINT"),
    "web.adaptive-scheduler.rescale-history.size": ("int", "0"),
    "penstock.elastic.kept-state": ("memory", "128 mb"),
}  # fmt: skip
"""Options that came after the table was made."""
CHANGED = {"python.fn-execution.arrow.batch.size": ("int", None)}
"""Options without Flink's default: not set, there is no limit."""
READ_AFTER_ALL = (
    "pipeline.object-reuse",
    "jobmanager.adaptive-scheduler.",
    "scheduler-mode",
    "execution.batch.adaptive.auto-parallelism.",
    "python.executable",
    "python.fn-execution.arrow.batch.size",
    "python.metric.enabled",
)
FLAME_GRAPHS = "rest.flamegraph."
GONE = "jobmanager.adaptive-scheduler.min-parallelism-increase"
"""Flink has it no more."""


def test_no_option_is_lost_and_each_has_its_type_and_default() -> None:
    before = {key: (kind, default) for key, kind, default, _ in TABLE["options"]}
    now = {key: (KINDS[option.kind.name], option.default) for key, option in OPTIONS.items()}
    assert now == before | ADDED | CHANGED


def test_an_option_with_a_name_in_its_key_is_found_for_every_name() -> None:
    option = find_option("metrics.reporter.my-prom.port")
    assert option is not None
    assert (option.key, option.default) == ("metrics.reporter.my-prom.port", "9249")
    assert option == OPTIONS["metrics.reporter.<name>.port"].of("my-prom")
    for other in ("metrics.reporter.port", "metrics.reporter.a.b.port", "metrics.reporter.a.x"):
        assert find_option(other) is None


def test_an_option_has_an_effect_where_it_had_one() -> None:
    for key, _, _, was_used in TABLE["options"]:
        is_read = was_used or (key.startswith((*READ_AFTER_ALL, FLAME_GRAPHS)) and key != GONE)
        assert OPTIONS[key].is_used == is_read, key


def test_former_keys_lead_to_the_options_that_they_led_to() -> None:
    assert TABLE["former_keys"].items() <= FORMER_KEYS.items()


def test_every_group_of_options_is_in_the_catalogue() -> None:
    assert set(GROUPS) == set(OptionGroup.__subclasses__())


def test_every_option_says_what_it_means() -> None:
    texts = documentation()
    assert texts.keys() == OPTIONS.keys()
    assert [key for key, text in texts.items() if not text.endswith((".", "?"))] == []


def test_an_older_option_has_the_type_of_the_one_that_it_stands_for() -> None:
    pairs = [(option, option.fallback) for option in OPTIONS.values() if option.fallback]
    assert len(pairs) == 11
    for option, older in pairs:
        assert (older.kind, older.default) == (option.kind, option.default), option.key


def test_the_reference_page_shows_what_the_options_say() -> None:
    written = option_pages.TARGET.read_text(encoding="utf-8")
    assert written == option_pages.page(), "run: python -m scripts.option_pages"


def test_the_reference_page_shows_every_option_once() -> None:
    lines = option_pages.page().splitlines()
    for key in OPTIONS:
        assert sum(line.startswith(f"| `{key}` |") for line in lines) == 1, key


def keys_in(source: str) -> Iterator[tuple[int, str]]:
    """Lines with a string that is the key of an option, now or formerly."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (node.value in OPTIONS or node.value in FORMER_KEYS)
        ):
            yield node.lineno, node.value


def modules() -> list[Path]:
    options = PACKAGE / "engine" / "model" / "options"
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != options]


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nobody_asks_for_an_option_by_a_string(path: Path) -> None:
    found = list(keys_in(path.read_text(encoding="utf-8")))
    assert not found, (
        f"{path}: take the option's name, as TaskOptions.PROGRESS_TIMEOUT, instead of {found}"
    )


def test_a_string_that_is_a_key_is_found() -> None:
    assert list(keys_in('x = 1\nsettings.get("slot.idle.timeout")')) == [(2, "slot.idle.timeout")]


FLINK = json.loads((Path(__file__).parent / "flink_keys.json").read_text(encoding="utf-8"))
PRESENT, FORMER = set(FLINK["present"]), FLINK["former"]
OF_FLINK_1 = {
    "execution.checkpointing.prefer-checkpoint-for-recovery",
    "high-availability.zookeeper.path.checkpoint-counter",
    "high-availability.zookeeper.path.checkpoints",
    "high-availability.zookeeper.path.latch",
    "high-availability.zookeeper.path.leader",
    "high-availability.zookeeper.path.running-registry",
    "jobmanager.heap.size",
    "local.number-resourcemanager",
    "state.backend.async",
    "state.backend.rocksdb.ttl.compaction.filter.enabled",
    "taskmanager.heap.size",
    "taskmanager.network.netty.num-arenas",
    "taskmanager.network.netty.sendReceiveBufferSize",
    "taskmanager.network.netty.transport",
}
"""Names that Flink 2 has no more."""


def test_the_names_without_effect_are_names_of_flink():
    assert FLINK_NAMES - PRESENT - FORMER.keys() == OF_FLINK_1 | {"web.address"}


@pytest.mark.parametrize("key", sorted({*PRESENT, *FORMER}))
def test_no_option_of_flink_is_taken_for_a_misspelt_one(key):
    check_spelling(key)
    assert nearest(key) is None


def test_a_former_name_in_flink_has_the_effect_of_the_present_one():
    used = {old: new for old, new in FORMER.items() if new in OPTIONS and OPTIONS[new].is_used}
    others = {old: new for old, new in used.items() if old not in OPTIONS}
    assert len(others) > 30
    assert {old: FORMER_KEYS.get(old) for old in others} == others


def test_where_checkpoints_lie_can_be_said_with_the_name_of_flink_1_0():
    settings = Settings({"state.backend.fs.checkpointdir": "/checkpoints"})
    assert settings.get(CheckpointOptions.DIR) == "/checkpoints"
