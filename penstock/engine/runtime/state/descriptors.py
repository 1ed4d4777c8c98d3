"""State descriptors and time to live, with PyFlink's names. Plain data; does not know the states themselves.

Source: PyFlink pyflink.datastream.state; differs: `ttl` may be a Time, Duration or timedelta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from penstock.engine.model.time import Time, millis_of
from penstock.engine.model.types import (
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    TypeInformation,
)

_AGGREGATE_METHODS: Final = ("create_accumulator", "add", "get_result", "merge")


class StateTtlConfig:
    """Sets how long state lives after its last write (or read), in processing time."""

    class UpdateType(Enum):
        """What renews the time to live: nothing (Disabled), writes, or writes and reads."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether expired state that is not cleaned up yet can still be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The time that counts: processing time."""

        ProcessingTime = 0

    def __init__(
        self,
        update_type: StateTtlConfig.UpdateType,
        state_visibility: StateTtlConfig.StateVisibility,
        ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic,
        ttl: Any,
        cleanup_strategies: StateTtlConfig.CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies
        self.ttl_ms = millis_of(ttl)
        if self.ttl_ms <= 0:
            raise ValueError(f"a time to live must be positive, got {ttl!r}")

    @staticmethod
    def new_builder(ttl: Any) -> StateTtlConfig.Builder:
        """Start a config. `ttl`: the time to live as Time, Duration or timedelta."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> StateTtlConfig.UpdateType:
        return self._update_type

    def get_state_visibility(self) -> StateTtlConfig.StateVisibility:
        return self._state_visibility

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return Time(self.ttl_ms)

    def get_ttl_time_characteristic(self) -> StateTtlConfig.TtlTimeCharacteristic:
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> StateTtlConfig.CleanupStrategies:
        return self._cleanup_strategies

    def __repr__(self) -> str:
        when, shown = self._update_type.name, self._state_visibility.name
        return f"StateTtlConfig<update_type={when}, state_visibility={shown}, ttl={self._ttl}>"

    class CleanupStrategies:
        """Sets when expired state is deleted, besides on access.

        State in memory is deleted on access and left out of snapshots.
        """

        class Strategies(Enum):
            """The names of the strategies."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy:
            """The base of all strategies."""

        class EmptyCleanupStrategy(CleanupStrategy):
            """A strategy without parameters."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            """Checks some entries at each access."""

            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = cleanup_size
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Deletes expired entries when the database compacts its files."""

            def __init__(
                self, query_time_after_num_entries: int, periodic_compaction_time: Any = None
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                if periodic_compaction_time is not None:
                    millis_of(periodic_compaction_time)  # Raises for a number without a unit.
                self._periodic_compaction_time = periodic_compaction_time

            def get_query_time_after_num_entries(self) -> int:
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Any:
                return self._periodic_compaction_time

        def __init__(self, strategies: dict[Any, Any], is_cleanup_in_background: bool) -> None:
            self._strategies = strategies
            self._is_cleanup_in_background = is_cleanup_in_background

        def is_cleanup_in_background(self) -> bool:
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def get_incremental_cleanup_strategy(self) -> Any:
            default = self.IncrementalCleanupStrategy(5, False)
            return self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP, default)

        def get_rocksdb_compact_filter_cleanup_strategy(self) -> Any:
            default = self.RocksdbCompactFilterCleanupStrategy(1000)
            return self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER, default)

    class Builder:
        """Builds a StateTtlConfig; the setters return the builder."""

        def __init__(self, ttl: Any) -> None:
            self.set_ttl(ttl)
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[Any, Any] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Set what renews the time to live."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Let writes renew the time to live (default)."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Let writes and reads renew the time to live."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateTtlConfig.StateVisibility
        ) -> StateTtlConfig.Builder:
            """Set whether expired state can still be read."""
            self._visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Let expired state be read until it is cleaned up."""
            kinds = StateTtlConfig.StateVisibility
            return self.set_state_visibility(kinds.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return expired state (default)."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set the time that counts: processing time is the only one."""
            self._characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Count processing time (default)."""
            kinds = StateTtlConfig.TtlTimeCharacteristic
            return self.set_ttl_time_characteristic(kinds.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired state out of full snapshots."""
            kinds = StateTtlConfig.CleanupStrategies
            self._strategies[kinds.Strategies.FULL_STATE_SCAN_SNAPSHOT] = (
                kinds.EmptyCleanupStrategy()
            )
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Check some entries at each access.

            Args:
                cleanup_size: the number of entries to check at a time.
                run_cleanup_for_every_record: also check when a record does not access the state.
            """
            kinds = StateTtlConfig.CleanupStrategies
            self._strategies[kinds.Strategies.INCREMENTAL_CLEANUP] = (
                kinds.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: Any = None
        ) -> StateTtlConfig.Builder:
            """Delete expired entries when the database compacts its files.

            Args:
                query_time_after_num_entries: the number of entries after which the time is read
                    again.
                periodic_compaction_time: the age at which files are compacted in any case.
            """
            kinds = StateTtlConfig.CleanupStrategies
            self._strategies[kinds.Strategies.ROCKSDB_COMPACTION_FILTER] = (
                kinds.RocksdbCompactFilterCleanupStrategy(
                    query_time_after_num_entries, periodic_compaction_time
                )
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Delete expired state on access only, unless another strategy is set."""
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Any) -> StateTtlConfig.Builder:
            """Set the time to live: Time, Duration or timedelta."""
            millis_of(ttl)  # Raises here, at the user's line.
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """Return the config."""
            return StateTtlConfig(
                self._update_type,
                self._visibility,
                self._characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(self._strategies, self._is_cleanup_in_background),
            )


class StateDescriptor:
    """Names and types a state. State in memory keeps objects, whatever the type."""

    def __init__(self, name: str, type_info: TypeInformation | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a state needs a non-empty name, got {name!r}")
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise TypeError(f"state {name!r} takes a type such as Types.INT(), got {type_info!r}")
        self.name = name
        self.type_info = type_info or PickledBytesTypeInfo()
        self.stored_type: TypeInformation | None = self.type_info
        """The type that snapshots note. An operator whose own state has the type of its records sets it."""
        self._ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let the state expire by this config."""
        self._ttl_config = ttl_config

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """The config of the time to live; None if it is not enabled."""
        config = self._ttl_config
        return config if config is not None and config.is_enabled() else None


class ValueStateDescriptor(StateDescriptor):
    """Describes state with one value per key."""

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes state with a list per key."""

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, ListTypeInfo(elem_type_info or PickledBytesTypeInfo()))


class MapStateDescriptor(StateDescriptor):
    """Describes state with a map per key."""

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
    ) -> None:
        pickled = PickledBytesTypeInfo()
        super().__init__(name, MapTypeInfo(key_type_info or pickled, value_type_info or pickled))


class ReducingStateDescriptor(StateDescriptor):
    """Describes state with one value per key, which is reduced with each added one."""

    def __init__(
        self, name: str, reduce_function: Any, type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, type_info)
        _check_methods(reduce_function, ("reduce",), f"ReducingStateDescriptor({name!r})")
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> Any:
        return self._reduce_function

    @property
    def reduce(self) -> Callable[[Any, Any], Any]:
        """The reduce function as a callable."""
        found: Callable[[Any, Any], Any] = getattr(
            self._reduce_function, "reduce", self._reduce_function
        )
        return found


class AggregatingStateDescriptor(StateDescriptor):
    """Describes state with one accumulator per key."""

    def __init__(
        self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, state_type_info)
        _check_methods(agg_function, _AGGREGATE_METHODS, f"AggregatingStateDescriptor({name!r})")
        self._agg_function = agg_function

    def get_agg_function(self) -> Any:
        return self._agg_function


def _check_methods(function: Any, methods: Sequence[str], where: str) -> None:
    """A single method may be a callable instead. Raises: TypeError."""
    is_one = all(callable(getattr(function, name, None)) for name in methods)
    is_callable = len(methods) == 1 and callable(function)
    if isinstance(function, type) or not (is_one or is_callable):
        raise TypeError(
            f"{where} takes an object with {', '.join(methods)}"
            f"{' or a callable' if len(methods) == 1 else ''}, got {function!r}."
        )
