"""One option: its key, how its text is read, its default, and its meaning.

Does not know any option by name, or its readers. Source: Flink ConfigOption, ConfigOptions; differs: the default is a
text as Flink prints it, and a kind is called to make an option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

from penstock.engine.model.options.parsing import (
    as_text,
    parse_bool,
    parse_duration_ms,
    parse_fine_duration_ms,
    parse_float,
    parse_int,
    parse_list,
    parse_map,
    parse_memory_bytes,
    parse_separated,
    parse_signed_duration_ms,
    parse_str,
    refusal,
)

T = TypeVar("T")

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
