"""Nexmark events as a source: persons, auctions and bids of the online auction benchmark, as columns.

Event number n is the same whatever the batch size, the parallelism and the rate are: all randomness comes from a hash
of the number and the seed. Source: the Nexmark generator's distributions (1 person, 3 auctions and 46 bids in 50
events; half of the bids on the hot auction, three quarters by the hot bidder); differs: all kinds of events have the
same columns, there is no filler text, and the implementation is our own.

Columns: `kind` (PERSON, AUCTION, BID), `auction`, `bidder`, `price`, `ts` (epoch ms, also the records' timestamp). In
an auction, `bidder` is the seller and `price` the first bid; in a person, `auction` and `price` are 0.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.connectors.datagen import BatchGeneratorSource
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.setting_checks import check_whole

PERSON: Final = 0
AUCTION: Final = 1
BID: Final = 2
BASE_MS: Final = 1_700_000_000_000
PERSONS, AUCTIONS, EVENTS = 1, 3, 50  # of each fifty events: one person, three auctions, else bids
FIRST_ID: Final = 1000
ACTIVE_PERSONS: Final = 1000
AUCTIONS_IN_FLIGHT: Final = 100
HOT_GROUP: Final = 100
LEAD: Final = 10
COLUMNS: Final = ("kind", "auction", "bidder", "price", "ts")
DEFAULT_BATCH_EVENTS: Final = 65_536
MAX_EVENTS: Final = 2**40

Int64s: TypeAlias = NDArray[np.int64]
UInt64s: TypeAlias = NDArray[np.uint64]


class NexmarkSource(BatchGeneratorSource):
    """Generates Nexmark events.

    Args:
        events: how many; None is without end.
        events_per_second: the rate of event time.
        rate_per_second: the rate by the clock; None is as fast as possible.
        bids_only: leaves persons and auctions out.
        columns: the columns to generate.
    """

    def __init__(
        self,
        events: int | None,
        seed: int = 0,
        events_per_second: int = 10_000,
        batch_size: int = DEFAULT_BATCH_EVENTS,
        rate_per_second: float | None = None,
        bids_only: bool = False,
        columns: tuple[str, ...] = COLUMNS,
    ) -> None:
        check_whole("NexmarkSource: events_per_second", events_per_second, 1)
        if events is not None and events > MAX_EVENTS:
            raise ConfigurationError(
                f"NexmarkSource: events must be at most 2^40 or None, got {events}."
            )
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown or "ts" not in columns:
            raise ConfigurationError(
                f"NexmarkSource: columns must contain 'ts', and only names of {COLUMNS}, got "
                f"{columns}."
            )
        generator = NexmarkGenerator(seed, events_per_second, columns, is_bids_only=bids_only)
        super().__init__(generator.batch, events, batch_size, rate_per_second, timestamps="ts")


class NexmarkGenerator:
    """Makes any range of events."""

    def __init__(
        self,
        seed: int,
        events_per_second: int,
        columns: tuple[str, ...] = COLUMNS,
        *,
        is_bids_only: bool = False,
    ) -> None:
        self._seed = seed
        self._events_per_second = events_per_second
        self._columns = columns
        self._is_bids_only = is_bids_only

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Events [start, stop); without persons and auctions when only bids are wanted."""
        numbers = np.arange(start, stop, dtype=np.int64)
        if self._is_bids_only:
            numbers = numbers[numbers % EVENTS >= PERSONS + AUCTIONS]
        kinds = _kinds(numbers)
        chance = _chance(numbers, self._seed)
        made = {
            name: pa.array(self._column(name, numbers, kinds, chance)) for name in self._columns
        }
        return pa.RecordBatch.from_pydict(made)

    def _column(
        self, name: str, numbers: Int64s, kinds: NDArray[np.int8], chance: UInt64s
    ) -> NDArray[np.int64] | NDArray[np.int8]:
        if name == "kind":
            return kinds
        if name == "ts":
            return BASE_MS + numbers * 1000 // self._events_per_second
        if name == "auction":
            return _auctions(numbers, kinds, chance)
        if name == "bidder":
            return _bidders(numbers, kinds, chance)
        return _prices(kinds, chance)


def _kinds(numbers: Int64s) -> NDArray[np.int8]:
    place = numbers % EVENTS
    return ((place >= PERSONS).astype(np.int8) + (place >= PERSONS + AUCTIONS)).astype(np.int8)


def _auctions(numbers: Int64s, kinds: NDArray[np.int8], chance: UInt64s) -> Int64s:
    """Bids: half on the hot auction, half on one of those in flight. Auctions: their own id."""
    newest = _last_auction(numbers)
    hot = newest // HOT_GROUP * HOT_GROUP
    oldest = np.maximum(newest - AUCTIONS_IN_FLIGHT, 0)
    any_open = oldest + _pick(chance, 1, newest - oldest + 1 + LEAD)
    is_hot = (chance & np.uint64(1)).astype(bool)
    chosen = np.where(kinds == BID, np.where(is_hot, hot, any_open), newest) + FIRST_ID
    ids: Int64s = np.where(kinds == PERSON, 0, chosen)
    return ids


def _bidders(numbers: Int64s, kinds: NDArray[np.int8], chance: UInt64s) -> Int64s:
    """Three quarters of the bids by the hot bidder, of the auctions by the hot seller. Persons:
    their id.
    """
    newest = numbers // EVENTS
    people = np.minimum(newest + 1, ACTIVE_PERSONS)
    anybody = newest + 1 - people + _pick(chance, 22, people + LEAD)
    hot = newest // HOT_GROUP * HOT_GROUP + (kinds == BID)
    is_hot = (chance >> np.uint64(43)) & np.uint64(3) != 0
    ids: Int64s = np.where(kinds == PERSON, newest, np.where(is_hot, hot, anybody)) + FIRST_ID
    return ids


def _prices(kinds: NDArray[np.int8], chance: UInt64s) -> Int64s:
    """Between 100 and 10^8, evenly on a logarithmic scale."""
    share = (chance >> np.uint64(45)).astype(np.float64) / float(2**19)
    drawn = np.round(10.0 ** (share * 6.0) * 100.0).astype(np.int64)
    prices: Int64s = np.where(kinds == PERSON, 0, drawn)
    return prices


def _last_auction(numbers: Int64s) -> Int64s:
    """The newest auction at each event, counted from 0."""
    epoch, place = numbers // EVENTS, numbers % EVENTS
    newest = np.clip(place - PERSONS, -1, AUCTIONS - 1)
    last: Int64s = np.maximum(epoch * AUCTIONS + newest, 0)
    return last


def _pick(chance: UInt64s, shift: int, bound: Int64s) -> Int64s:
    """A number in [0, bound) from 21 of the chance's bits."""
    bits = ((chance >> np.uint64(shift)) & np.uint64(2**21 - 1)).astype(np.int64)
    picked: Int64s = bits * bound >> 21
    return picked


def _chance(numbers: Int64s, seed: int) -> UInt64s:
    """64 random bits for each event (SplitMix64)."""
    start = np.uint64((seed * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & (2**64 - 1))
    bits = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: UInt64s = bits ^ (bits >> np.uint64(31))
    return mixed
