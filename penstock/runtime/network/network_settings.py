"""What a TaskManager is configured to give to the data exchange between tasks. Plain data, JSON both ways.

Source: Flink NettyShuffleEnvironmentConfiguration; keys and defaults stand in `model/config_options.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.graph.job_graph import ResultPartitionType

_NETWORK = "taskmanager.network."
_MEMORY = "taskmanager.network.memory."
_MAX_REQUIRED_OF_BLOCKING = 1000
_LEAST_GATES = 128  # must fit into the memory, however many buffers a gate would like


@dataclass(frozen=True, slots=True)
class DebloatSettings:
    """Times in ms; `threshold_percent`: smaller changes of a buffer's size are not announced."""

    is_enabled: bool = False
    period_ms: int = 200
    target_ms: int = 1000
    samples: int = 20
    threshold_percent: int = 25


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Sizes in bytes, times in ms, the others counts of buffers. `max_required_per_gate` None: by the type.
    `exclusive_per_gate`: a gate of few channels gives each of them an equal part of so many, if that is more than
    `buffers_per_channel`: a message that grants credit wakes a thread, and with more credit there are fewer.

    256 MiB hold 250 buffers of 1 MiB, about ten exchanges at full speed, or 8,000 of 32 KiB, which is an
    all-to-all exchange of some 40 subtasks here with as many elsewhere; a Python TaskManager itself has 100 MiB.
    """

    memory_bytes: int = 256 << 20
    segment_bytes: int = 32 << 10
    min_segment_bytes: int = 256
    buffers_per_channel: int = 2
    exclusive_per_gate: int = 0
    floating_per_gate: int = 8
    max_per_subpartition: int = 10
    max_overdraft: int = 5
    max_required_per_gate: int | None = None
    initial_backoff_ms: int = 100
    max_backoff_ms: int = 10_000
    request_timeout_ms: int = 10_000
    uses_local_sockets: bool = True
    debloat: DebloatSettings = DebloatSettings()

    def exclusive_of(self, channels: int) -> int:
        """Buffers that each channel of a gate has for itself; none at all if it is so configured."""
        if not self.buffers_per_channel or not channels:
            return self.buffers_per_channel
        affordable = self.memory_bytes // self.segment_bytes // _LEAST_GATES
        return max(self.buffers_per_channel, min(self.exclusive_per_gate, affordable) // channels)

    def required_cap(self, result_type: ResultPartitionType) -> int | None:
        """Most buffers that a gate of this type requires; None: as many as it needs."""
        if self.max_required_per_gate is not None:
            return self.max_required_per_gate
        is_pipelined = result_type.name.startswith("PIPELINED")
        return None if is_pipelined else _MAX_REQUIRED_OF_BLOCKING


def network_settings_of(settings: Settings) -> NetworkSettings:
    """Raises: ConfigurationError: a value out of range."""
    found = NetworkSettings(
        memory_bytes=network_memory_bytes(settings),
        segment_bytes=settings.get_int("taskmanager.memory.segment-size"),
        min_segment_bytes=settings.get_int("taskmanager.memory.min-segment-size"),
        buffers_per_channel=settings.get_int(_MEMORY + "buffers-per-channel"),
        exclusive_per_gate=_exclusive_per_gate(settings),
        floating_per_gate=settings.get_int(_MEMORY + "floating-buffers-per-gate"),
        max_per_subpartition=settings.get_int(_MEMORY + "max-buffers-per-channel"),
        max_overdraft=settings.get_int(_MEMORY + "max-overdraft-buffers-per-gate"),
        max_required_per_gate=settings.get_optional_int(
            _MEMORY + "read-buffer.required-per-gate.max"
        ),
        initial_backoff_ms=settings.get_int(_NETWORK + "request-backoff.initial"),
        max_backoff_ms=settings.get_int(_NETWORK + "request-backoff.max"),
        request_timeout_ms=settings.get_int(_NETWORK + "partition-request-timeout"),
        uses_local_sockets=settings.get_bool("penstock.exchange.local-sockets"),
        debloat=DebloatSettings(
            settings.get_bool(_MEMORY + "buffer-debloat.enabled"),
            settings.get_int(_MEMORY + "buffer-debloat.period"),
            settings.get_int(_MEMORY + "buffer-debloat.target"),
            settings.get_int(_MEMORY + "buffer-debloat.samples"),
            settings.get_int(_MEMORY + "buffer-debloat.threshold-percentages"),
        ),
    )
    _check(found)
    return found


def _exclusive_per_gate(settings: Settings) -> int:
    """Whoever says how many a channel has gets just those."""
    if settings.is_set(_MEMORY + "buffers-per-channel"):
        return 0
    return settings.get_int("penstock.exchange.exclusive-buffers-per-gate")


def network_settings_from(told: Mapping[str, Any]) -> NetworkSettings:
    """Of what `dataclasses.asdict` made, perhaps after a way through JSON."""
    return NetworkSettings(**{**told, "debloat": DebloatSettings(**told["debloat"])})


def network_memory_bytes(settings: Settings) -> int:
    """The exact size if it is set, else the TaskManager's fraction, else the default, within min and max."""
    key = "taskmanager.memory.network"
    if settings.is_set(key):
        return settings.get_int(key)
    total = settings.get_optional_int("taskmanager.memory.flink.size")
    if total is None:
        total = settings.get_optional_int("taskmanager.memory.process.size")
    wanted = (
        settings.get_int(key)
        if total is None
        else int(total * settings.get_float(f"{key}.fraction"))
    )
    least, most = settings.get_int(f"{key}.min"), settings.get_int(f"{key}.max")
    if least > most:
        raise ConfigurationError(
            f"options '{key}.min' and '{key}.max' are {least:,} and {most:,} bytes, but min must not be "
            "above max. Change one of them."
        )
    return min(max(wanted, least), most)


def _check(network: NetworkSettings) -> None:
    """At least 1 where nothing works without, and what must not be below something else."""
    rules = (
        ("taskmanager.memory.segment-size", network.segment_bytes, 256),
        ("taskmanager.memory.network", network.memory_bytes, network.segment_bytes),
        (_MEMORY + "buffers-per-channel", network.buffers_per_channel, 0),
        ("penstock.exchange.exclusive-buffers-per-gate", network.exclusive_per_gate, 0),
        (_MEMORY + "floating-buffers-per-gate", network.floating_per_gate, 1),
        (_MEMORY + "max-buffers-per-channel", network.max_per_subpartition, 1),
        (_MEMORY + "max-overdraft-buffers-per-gate", network.max_overdraft, 0),
        (_NETWORK + "request-backoff.initial", network.initial_backoff_ms, 0),
        (_NETWORK + "request-backoff.max", network.max_backoff_ms, network.initial_backoff_ms),
        (_MEMORY + "buffer-debloat.period", network.debloat.period_ms, 1),
        (_MEMORY + "buffer-debloat.target", network.debloat.target_ms, 1),
        (_MEMORY + "buffer-debloat.samples", network.debloat.samples, 1),
    )
    for key, value, least in rules:
        if value < least:
            raise ConfigurationError(
                f"option '{key}' is {value}, but it takes at least {least}. Change the setting."
            )
