"""One option: its key, how its text is read, its default, and its meaning; and texts to values: durations, sizes, numbers,
flags, lists and pairs.

Does not know any option by name, or its readers. Source: Flink ConfigOption, ConfigOptions, TimeUtils, MemorySize,
ConfigurationUtils; differs: the default is a text as Flink prints it, and a kind is called to make an option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

from penstock.engine.model.errors import ConfigurationError

INT_MAX: Final = 2**31 - 1
_LAST_PORT: Final = 65_535

_UNITS_MS: Final = {
    "ns": 1e-6, "nano": 1e-6, "nanosecond": 1e-6,
    "us": 1e-3, "micro": 1e-3, "microsecond": 1e-3, "\u00b5s": 1e-3,
    "": 1, "ms": 1, "milli": 1, "millisecond": 1,
    "s": 1000, "sec": 1000, "second": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000,
    "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip
_UNITS_BYTES: Final = {
    "": 0, "b": 0, "bytes": 0,
    "k": 10, "kb": 10, "kibibytes": 10,
    "m": 20, "mb": 20, "mebibytes": 20,
    "g": 30, "gb": 30, "gibibytes": 30,
    "t": 40, "tb": 40, "tebibytes": 40,
}  # fmt: skip
_NUMBER_AND_UNIT: Final = re.compile(r"\s*(\d+)\s*([^\W\d]*)\s*")


def parse_duration_ms(text: str, key: str = "") -> int:
    """Milliseconds of `5 min`, `200 ms`, `1 h`, `20`; parts below a millisecond are cut off."""
    return int(parse_fine_duration_ms(text, key))


def parse_signed_duration_ms(text: str, key: str = "") -> int:
    """As `parse_duration_ms`, but negative ones too: `-1`, `-1 ms`."""
    digits = text.strip().removeprefix("-")
    sign = -1 if text.strip().startswith("-") else 1
    return sign * parse_duration_ms(digits, key)


def parse_fine_duration_ms(text: str, key: str = "") -> float:
    """Milliseconds, with their fractions, of `200 us` or `1 ms`."""
    match = _NUMBER_AND_UNIT.fullmatch(text.strip().lower())
    unit = match[2] if match else ""
    if match and unit not in _UNITS_MS:
        unit = unit.removesuffix("s")
    if not match or unit not in _UNITS_MS:
        raise refusal(key, text, "a duration such as '200 ms', '5 s', '10 min' or '1 h'")
    return int(match[1]) * _UNITS_MS[unit]


def parse_memory_bytes(text: str, key: str = "") -> int:
    """Bytes of `64 mb`, `1g`, `32768`; the units are powers of 1024."""
    match = _NUMBER_AND_UNIT.fullmatch(text.strip().lower())
    if not match or match[2] not in _UNITS_BYTES:
        raise refusal(key, text, "a size such as '32 kb', '64 mb' or '1 gb'")
    return int(match[1]) << _UNITS_BYTES[match[2]]


def parse_int(text: str, key: str) -> int:
    if text.strip().lower() in {"infinite", "infinity"}:
        return INT_MAX
    try:
        return int(text)
    except ValueError:
        raise refusal(key, text, "a whole number") from None


def parse_float(text: str, key: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refusal(key, text, "a number") from None


def parse_bool(text: str, key: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise refusal(key, text, "true or false")
    return word == "true"


def parse_str(text: str, _key: str) -> str:
    return text


def parse_list(text: str, _key: str) -> list[str]:
    inner = text.strip().removeprefix("[").removesuffix("]")
    return [part.strip().strip("'\"") for part in re.split(r"[;,]", inner) if part.strip()]


def parse_separated(text: str, _key: str) -> list[str]:
    """Texts between semicolons. A comma is a part of a text."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    return [part.strip().strip("'\"") for part in inner.split(";") if part.strip()]


def parse_map(text: str, key: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    found = {name.strip(): value.strip() for name, colon, value in pairs if colon}
    if text.strip() and not found:
        raise refusal(key, text, "pairs such as 'a:1,b:2'")
    return found


def ports_in(text: str) -> list[int]:
    """Return the ports of `8081-8181,50100`, in order. Raises: ValueError: the text is another one, or has none."""
    found: list[int] = []
    for part in text.split(","):
        first, sign, last = part.strip().partition("-")
        of_part = range(int(first), (int(last) if sign else int(first)) + 1)
        if not of_part or not 0 <= of_part[0] <= of_part[-1] <= _LAST_PORT:
            raise ValueError("no ports from 0 to 65535")
        found += of_part
    return found


def parse_ports(text: str, key: str) -> str:
    """Check them. No text is left to the reader of the option."""
    try:
        ports_in(text or "0")
    except ValueError:
        takes = (
            "ports from 0 to 65535 and ranges of ports, as '50100-50110,50200'; 0 is any free port"
        )
        raise refusal(key, text, takes) from None
    return text


def refusal(key: str, value: object, wanted: str) -> ConfigurationError:
    where = f"option '{key}'" if key else "the value"
    return ConfigurationError(f"{where} is {value!r}, but it takes {wanted}. Change the setting.")


def as_text(value: bool | float | list[str] | dict[str, str]) -> str:
    """The text from which this value can be read."""
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return ";".join(map(str, value))
        case dict():
            return ",".join(f"{name}:{text}" for name, text in value.items())
        case _:
            return str(value)


T = TypeVar("T")
S = TypeVar("S", bound=str)

NAME: Final = "<name>"
"""Stands in the key of an option that users may set several times, each time for another name."""


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """`T`: the type of its value. `default`: a text as Flink prints it; None: there is none.

    `is_used`: False if the key has no effect, and only PyFlink's setters know it. `former_keys`: its former names; they
    set it if its present key is not set. `fallback`: an older option whose value is used if only that one is set.
    Unlike a former key it is an option itself, and errors name it.
    """

    key: str
    kind: Kind[Any]
    default: str | None
    is_used: bool = True
    former_keys: tuple[str, ...] = ()
    fallback: Option[T] | None = None

    def of(self, name: str) -> Option[T]:
        """Return the option for one name: for x the key `a.<name>.b` is `a.x.b`."""
        return replace(self, key=self.key.replace(NAME, name))

    def parse(self, given: object) -> T:
        """The value of a setting. Raises: ConfigurationError: the text names the key."""
        if not isinstance(given, (str, bool, int, float, list, dict)):
            raise refusal(self.key, given, "a text, number, boolean, list or mapping")
        value: T = self.kind.parse(given if isinstance(given, str) else as_text(given), self.key)
        return value


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How a text is read. `unit`: the unit of the value that readers get, "" if it has none."""

    name: str
    parse: Callable[[str, str], T]
    unit: str = ""

    @overload
    def __call__(
        self, key: str, default: str, *, former: str = "", older: str = "", is_used: bool = True
    ) -> Option[T]: ...

    @overload
    def __call__(
        self,
        key: str,
        default: None = None,
        *,
        former: str = "",
        older: str = "",
        is_used: bool = True,
    ) -> Option[T | None]: ...

    def __call__(
        self,
        key: str,
        default: str | None = None,
        *,
        former: str = "",
        older: str = "",
        is_used: bool = True,
    ) -> Option[Any]:
        """Return an option of this kind; its value is None only if it has no default.

        `former`: its former keys, separated by spaces. `older`: the key of its fallback.
        """
        fallback: Option[Any] | None = Option(older, self, default) if older else None
        return Option(key, self, default, is_used, tuple(former.split()), fallback)


duration: Final = Kind("duration", parse_duration_ms, "ms")
signed_duration: Final = Kind("duration", parse_signed_duration_ms, "ms")
"""May be negative, where that stands for no limit."""
fine_duration: Final = Kind("fine duration", parse_fine_duration_ms, "ms")
size: Final = Kind("size", parse_memory_bytes, "bytes")
whole: Final = Kind("whole number", parse_int)
number: Final = Kind("number", parse_float)
flag: Final = Kind("true or false", parse_bool)
text: Final = Kind("text", parse_str)
texts: Final = Kind("list of texts", parse_list)
separated_texts: Final = Kind("list of texts", parse_separated)
"""Texts that may have commas themselves."""
pairs: Final = Kind("pairs of texts", parse_map)
ports: Final = Kind("text", parse_ports)
"""What `ports_in` reads."""


def within(kind: Kind[T], least: float, most: float | None = None) -> Kind[T]:
    """The same kind, with bounds of its values."""
    return replace(kind, parse=partial(_parse_within, kind, least, most))


def _parse_within(kind: Kind[Any], least: float, most: float | None, text: str, key: str) -> Any:
    value = kind.parse(text, key)
    if value < least or (most is not None and value > most):
        unit = f" {kind.unit}" if kind.unit else ""
        upper = "" if most is None else f" and at most {most:,}{unit}"
        raise refusal(key, text, f"at least {least:,}{unit}{upper}")
    return value


def one_of(names: Iterable[S], adapt: Callable[[str], str] = str) -> Kind[S]:
    """Texts, or an enum of them. `adapt`: makes one of them of another way to write it."""
    return Kind("text", partial(_parse_one_of, {str(one): one for one in names}, adapt))


def strategy_name(text: str) -> str:
    """The name of a strategy of Flink, which has several for some."""
    name = text.lower()
    name = "none" if name in {"off", "disable"} else name
    return re.sub(r"(?<=[a-z])(delay|rate)$", r"-\1", name.replace("-", ""))


def _parse_one_of(names: Mapping[str, S], adapt: Callable[[str], str], text: str, key: str) -> S:
    found = names.get(adapt(text.strip()))
    if found is None:
        raise refusal(key, text, f"one of {', '.join(names)}")
    return found


class OptionGroup:
    """Options of one subject, as attributes. `title` and docstring head them on the reference page.

    The text below an attribute says what the option means: `catalogue.documentation` reads it.
    """

    title: ClassVar[str]

    def __init_subclass__(cls, title: str) -> None:
        cls.title = title

    @classmethod
    def options(cls) -> tuple[Option[Any], ...]:
        """The options in the order in which they are written, each with the older one that it falls back to."""
        found = [one for one in vars(cls).values() if isinstance(one, Option)]
        return tuple(
            one for option in found for one in (option, option.fallback) if one is not None
        )
