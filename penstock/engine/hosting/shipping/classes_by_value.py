"""Pickles classes that no module has, such as those of the main script: code anew each time, enums with all of a member.

Source: cloudpickle's reducers of dynamic classes; differs: classes that extend Function or can be called are
another class in each pickle, the classes that the program itself has are never changed, and enums keep
aliases, members without a bit of their own, and what `__init__` and `__new__` have set.
"""

from __future__ import annotations

import sys
import types
from enum import EnumMeta
from importlib import import_module
from typing import Any, Final
from weakref import WeakSet

from penstock.engine.hosting.shipping.main_classes import (
    MAIN,
    READING,
    class_of_main,
    is_name_in_function,
    note_class,
)

_MODULE: Final = "pyspark.cloudpickle.cloudpickle"
cloudpickle: Final[Any] = sys.modules.get(_MODULE) or import_module(_MODULE)
"""Where it is loaded without the packages above it, those stay away."""

_BUILT: Final[WeakSet[type]] = WeakSet()
"""Classes that this process has made from pickles."""
_COMPLETE: Final[WeakSet[type]] = WeakSet()
"""Those among them that have all their attributes."""


class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # it has no types
    """`by_value`: the classes that it has pickled so, without those of functions."""

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol=protocol)
        self.by_value: list[type] = []

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type) or not isinstance(reduced, tuple) or len(reduced) < 6:
            return reduced  # No class, or one that is pickled by its name.
        if isinstance(obj, EnumMeta):
            self.by_value.append(obj)
            return _reduced_enum(obj, note_class(obj))
        make, (*arguments, tracker_id, _extra), *rest = reduced
        is_code = _is_code(obj)
        if not is_code:
            self.by_value.append(obj)
        place = obj.__qualname__, not is_code and note_class(obj)
        return (make, (*arguments, None if is_code else tracker_id, place), *rest)


def _is_code(cls: type) -> bool:
    """Whether objects of the class are functions, not records: their classes need no identity beyond a pickle."""
    if issubclass(cls, type):
        return False
    return "__call__" in dir(cls) or any(
        base.__name__ == "Function" and base.__module__ == "penstock.datastream.functions.base"
        for base in cls.__mro__
    )


def make_class(
    metaclass: type,
    name: str,
    bases: Any,
    attributes: Any,
    tracker_id: str | None,
    place: tuple[str, bool] | None,
) -> type:
    """Take the place of cloudpickle's `_make_skeleton_class`. `place`: the qualified name, and whether it finds the class."""
    qualname, is_named = place or (name, False)
    known = _known(tracker_id, attributes.get("__module__"), qualname, is_named=is_named)
    if known is not None:
        return known
    made: type = cloudpickle._make_skeleton_class(
        metaclass, name, bases, attributes, tracker_id, None
    )
    made.__qualname__ = qualname
    _BUILT.add(made)
    return made


def set_class(cls: type, state: Any) -> type:
    """Take the place of cloudpickle's `_class_setstate`: only programs change classes, and none that is defined here."""
    if cls in _BUILT and (READING.is_program or cls not in _COMPLETE):
        cloudpickle._class_setstate(cls, state)
        _COMPLETE.add(cls)
    return cls


def _known(
    tracker_id: str | None, module: str | None, qualname: str, *, is_named: bool
) -> type | None:
    """The class of this process: by its id, or where another run wrote the pickle by its name in the main script.

    A session's driver may still have a class of the run that wrote the state: in state, a name that finds the class comes first.
    """
    if tracker_id is None:
        return None
    known: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker_id)
    if module != MAIN or READING.is_program:
        return known
    # A thread without a program writes a snapshot of what this process has read or made: ids are enough.
    by_name = is_named and READING.is_state and READING.of_program is not None
    is_in_function = is_name_in_function(qualname)
    # A function may make several classes of one name: only one of another run is looked for by name.
    if known is not None and (is_in_function or not by_name):
        return known
    return class_of_main(qualname) if by_name or not is_in_function else None


# ---------------------------------------------------------------------- enums


def _reduced_enum(cls: Any, is_named: bool) -> tuple[Any, ...]:
    """The class without its methods first, then those and what the members have beyond their values."""
    state, _slots = cloudpickle._class_getstate(cls)
    for name in (*cls.__members__, *_OF_THE_METACLASS):
        state.pop(name, None)
    members = [(name, one.value, _data_of(cls, one)) for name, one in cls.__members__.items()]
    tracker_id = cloudpickle._get_or_create_tracker_id(cls)
    arguments: tuple[Any, ...]
    place = cls.__qualname__, is_named
    arguments = (type(cls), cls.__name__, place, cls.__module__, cls.__bases__)
    attributes = {
        name: {key: value for key, value in vars(one).items() if key not in _OF_A_MEMBER}
        for name, one in cls.__members__.items()
    }
    arguments = (*arguments, members, tracker_id)
    return make_enum, arguments, (state, attributes), None, None, set_enum


_OF_THE_METACLASS: Final = (
    "_generate_next_value_",
    "_member_names_",
    "_member_map_",
    "_member_type_",
    "_value2member_map_",
)
_OF_A_MEMBER: Final = frozenset({"_name_", "__objclass__", "_sort_order_", "_inverted_"})


def _data_of(cls: Any, member: Any) -> Any:
    """What `__new__` of the type that the enum is mixed with takes to make this member."""
    mixed: Any = cls._member_type_
    if hasattr(mixed, "__getnewargs__"):
        return mixed.__getnewargs__(member)
    return () if mixed.__reduce__ is object.__reduce__ else mixed.__reduce__(member)[1]


def make_enum(
    metaclass: Any,
    name: str,
    place: tuple[str, bool],
    module: str,
    bases: tuple[type, ...],
    members: list[tuple[str, Any, tuple[Any, ...]]],
    tracker_id: str,
) -> type:
    """Make the class and its members, without a call of the user's `__new__` or `__init__`. `place`: as in `make_class`."""
    qualname, is_named = place
    known = _known(tracker_id, module, qualname, is_named=is_named)
    if known is not None:
        return known

    def new(cls: Any, at: Any) -> Any:
        _name, value, data = members[at if isinstance(at, int) else at[0]]
        mixed = cls._member_type_
        made = mixed.__new__(cls, *data)
        made._value_ = value
        return made

    namespace = types.prepare_class(name, bases, {"metaclass": metaclass})[1]
    namespace["__new__"] = new
    namespace["__init__"] = lambda *_arguments: None
    for at, (member, _value, _data) in enumerate(members):
        namespace[member] = (at,)
    made: Any = metaclass.__new__(metaclass, name, bases, namespace)
    for attribute in ("__init__", "__new_member__", "_new_member_", "_use_args_"):
        if attribute in vars(made):
            delattr(made, attribute)
    made.__module__, made.__qualname__ = module, qualname
    _BUILT.add(made)
    tracked: type = cloudpickle._lookup_class_or_track(tracker_id, made)
    return tracked


def set_enum(cls: Any, state: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> type:
    """Set the methods and other attributes of a class that `make_enum` has made, and those of its members."""
    if cls in _BUILT and cls not in _COMPLETE:
        attributes, of_members = state
        cloudpickle._class_setstate(cls, (attributes, {}))
        for name, more in of_members.items():
            vars(cls[name]).update(more)
        _COMPLETE.add(cls)
    made: type = cls
    return made
