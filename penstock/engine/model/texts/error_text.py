"""An error with its causes as text of bounded size, whatever its classes do. Does not know whom it is for.

Python's own format is used where it can be: it has no limit, and calls `__str__` of every cause. An error with a text that is
large or does not end is written here, in the same form. Source: Python's traceback module.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.engine.model.errors import CancelSignal
from penstock.engine.model.own_places import is_ours_here, is_pythons
from penstock.engine.model.texts.bounded_text import MOST_OF_MESSAGE, bounded_str, cut_lines, ends

_MOST_CAUSES: Final = 50
_MOST_RELATED: Final = 200
# Past what the class of an error makes of its attributes.
_FRAMES_OF: Final[Any] = BaseException.__dict__["__traceback__"].__get__
_NAME_OF: Final[Any] = type.__dict__["__qualname__"].__get__
_OWN_MODULE: Final = re.compile(r"^penstock\.(?:[a-z_0-9]+\.)+(?=[A-Z]\w*(?::|$))", re.MULTILINE)
"""Before the class of an error of ours. It says nothing to users, and may change."""
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"


def traceback_of(error: BaseException, *, of_user: bool = False) -> str:
    """The error's traceback with its causes first, in Python's own form, cut to `MOST_OF_MESSAGE` characters.

    Args: of_user: leave out Penstock's frames, unless there are no others.
    """
    return _OWN_MODULE.sub("", _made(lambda: _traceback_of(error, of_user), error))


def text_for_user(error: BaseException) -> str:
    """The error in one line, then the user's frames with the lines of source, and its causes. Penstock's frames are left out.

    An error that no frame of the user led to is the one line alone: its text has to say everything.
    """
    return _OWN_MODULE.sub("", _made(lambda: _text_for_user(error), error))


def _made(make: Callable[[], str], error: BaseException) -> str:
    """What `make` gives. An error whose class does not even let its causes be read is described by
    its kind, text and frames.
    """
    try:
        return make()
    except CancelSignal:
        raise
    except BaseException:
        frames = traceback.extract_tb(_FRAMES_OF(error))
        users = [frame for frame in frames if not is_ours_here(frame.filename)]
        lines = "".join(traceback.StackSummary.from_list(users or frames).format())
        text = bounded_str(error)
        name = _NAME_OF(type(error))
        return cut_lines(f"{name}: {text}\n{lines}".rstrip(), MOST_OF_MESSAGE)


def _traceback_of(error: BaseException, of_user: bool) -> str:
    related = list(_related(error))
    is_plain = len(related) < _MOST_RELATED and all(map(ends, related))
    text = _by_python(error, of_user) if is_plain else _by_hand(error, of_user)
    return cut_lines(text.rstrip(), MOST_OF_MESSAGE)


def _text_for_user(error: BaseException) -> str:
    related = list(_related(error))
    is_plain = len(related) < _MOST_RELATED and all(map(ends, related))
    headline = cut_lines(_headline(error), MOST_OF_MESSAGE // 2)
    if not is_plain:
        return cut_lines(f"{headline}\n{_by_hand(error, of_user=True).rstrip()}", MOST_OF_MESSAGE)
    whole = traceback.TracebackException.from_exception(error)
    if not _strip_engine(whole):
        return headline
    if isinstance(error, BaseExceptionGroup) or len(related) > 1:
        return cut_lines(f"{headline}\n{''.join(whole.format()).rstrip()}", MOST_OF_MESSAGE)
    return cut_lines(f"{headline}\n{''.join(whole.stack.format()).rstrip()}", MOST_OF_MESSAGE)


def headline_of(text: str, otherwise: str) -> str:
    """Return the error's own line of a traceback. `otherwise`: if there is none."""
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    errors = [line for line in lines if not line.startswith("Traceback")]
    return errors[-1] if errors else otherwise


def frames_of_user(error: BaseException, without: str | None = None) -> str:
    """The traceback of an error in Python's own form, with the frames of the program alone. Causes to which none of them led are left
    out, too: the text of the error says what they were.

    Args: without: frames are left out too if the names of their files contain this.
    """
    whole = traceback.TracebackException.from_exception(error)
    if without is not None:
        kept = [frame for frame in whole.stack if without not in frame.filename]
        whole.stack = traceback.StackSummary.from_list(kept)
    _strip_engine(whole)
    _drop_causes(whole)
    return "".join(whole.format()).rstrip()


def _by_python(error: BaseException, of_user: bool) -> str:
    whole = traceback.TracebackException.from_exception(error)
    if of_user and not _strip_engine(whole):
        whole = traceback.TracebackException.from_exception(error)
    return "".join(whole.format())


def _strip_engine(whole: traceback.TracebackException) -> bool:
    """Remove Penstock's frames from an error, its causes and its parts. Returns whether frames of the user are left."""
    is_any_left = False
    pending: list[traceback.TracebackException | None] = [whole]
    while pending:
        one = pending.pop()
        if one is None:
            continue
        frames = [frame for frame in one.stack if not is_ours_here(frame.filename)]
        one.stack = traceback.StackSummary.from_list(frames)
        is_any_left = is_any_left or not all(is_pythons(frame.filename) for frame in frames)
        pending += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return is_any_left


def _drop_causes(whole: traceback.TracebackException) -> None:
    """Remove the causes that have no frame of the user, from which all of Penstock's are removed, and their own causes."""
    one: traceback.TracebackException | None = whole
    while one is not None:
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None and all(is_pythons(frame.filename) for frame in cause.stack):
            one.__cause__ = one.__context__ = cause = None
        one = cause


def _by_hand(error: BaseException, of_user: bool) -> str:
    """The error and its nearest causes, without the parts of groups."""
    texts: list[str] = []
    for number, (one, link) in enumerate(_causes(error)):
        if number == _MOST_CAUSES:
            texts.append(f"… cut: more than {_MOST_CAUSES} causes before these\n" + link)
            break
        texts.append(_alone(one, of_user) + link)
    return "".join(reversed(texts))


def _alone(error: BaseException, of_user: bool) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    kept = [frame for frame in frames if not (of_user and is_ours_here(frame.filename))]
    lines = "".join(traceback.StackSummary.from_list(kept or frames).format())
    head = f"Traceback (most recent call last):\n{lines}" if lines else ""
    return f"{head}{_headline(error)}\n"


def _headline(error: BaseException) -> str:
    """The kind and the text, as in the last line of a traceback."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = bounded_str(error)
    return f"{name}: {text}" if text else name


def _causes(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """The error, then its cause, and so on, each with what stands between it and the error that it caused."""
    one: BaseException | None = error
    seen: set[int] = set()
    link = ""
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one, link
        if one.__cause__ is not None:
            one, link = one.__cause__, _CAUSE
        elif not one.__suppress_context__:
            one, link = one.__context__, _CONTEXT
        else:
            one = None


def _related(error: BaseException) -> Iterator[object]:
    """Everything whose str Python's format calls: the error, its causes, the parts of groups, and notes; at most `_MOST_RELATED`."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    count = 0
    while pending and count < _MOST_RELATED:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        notes = getattr(one, "__notes__", None)
        for each in (one, *(notes if isinstance(notes, list) else ())):
            count += 1
            yield each
        parts = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        pending += [one.__cause__, one.__context__, *parts]
