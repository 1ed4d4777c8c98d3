"""A span and an event, as reporters get them. Plain data. Source: Flink Span, Event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

AttributeValue: TypeAlias = str | int | float
Attributes: TypeAlias = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time, in epoch ms. `scope`: where it comes from; Flink's class if it has it."""

    scope: str
    name: str
    start_ms: int
    end_ms: int
    attributes: Attributes
    children: tuple[Span, ...] = ()

    def __str__(self) -> str:
        children = ", ".join(map(str, self.children))
        return (
            f"SimpleSpan{{scope={self.scope}, name={self.name}, startTsMillis={self.start_ms}, "
            f"endTsMillis={self.end_ms}, attributes={_text(self.attributes)}, "
            f"children=[{children}]}}"
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, at an epoch ms."""

    scope: str
    name: str
    at_ms: int
    attributes: Attributes

    def __str__(self) -> str:
        return (
            f"SimpleEvent{{scope={self.scope}, name={self.name}, observedTsMillis={self.at_ms}, "
            f"attributes={_text(self.attributes)}}}"
        )


def _text(attributes: Attributes) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in attributes.items()) + "}"
