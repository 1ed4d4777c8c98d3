"""The calls of a chain into its operators: what is converted before, and what becomes of an error. Does not know where output goes.

Source: Flink ChainingOutput, StreamTask.handleAsyncException; differs: an error is text that names operator, record and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from penstock.engine.model.graph.chain import ChainTarget
from penstock.engine.runtime.codecs.convert import enforce, enforce_where_it_fits, to_columns
from penstock.engine.runtime.elements import Batch, ColumnBatch, Element, RowBatch, Tagged
from penstock.engine.runtime.interruption import OperatorCalls
from penstock.engine.runtime.operator import Accepts, Emitted, Operator
from penstock.engine.runtime.records.dead_letters import PoisonRecords
from penstock.engine.runtime.records.parts import in_parts
from penstock.engine.runtime.row_functions.runner import ColumnRows
from penstock.engine.runtime.task.chain_node import ChainNode
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error

END: Final = object()
"""Stands for the end of what a call emits."""
Emitting: TypeAlias = "Iterator[Element | Tagged | None]"


def guarded(node: ChainNode, calls: OperatorCalls, call: Callable[[], None]) -> None:
    """Make a call into an operator that emits nothing. Raises: UserCodeError for whatever it raises."""
    calls.entered(node.spec.name)
    try:
        call()
    except PASSED_ON:
        raise
    except BaseException as error:
        raise user_code_error(node.spec, node.operator, error) from error
    finally:
        calls.left()


def next_of(
    node: ChainNode, calls: OperatorCalls, call: Callable[[], Emitted], emitting: Emitting | None
) -> tuple[Emitting, Any]:
    """Begin a call into an operator, or go on with it, up to what it emits next, or to END.

    Whatever is raised in here was raised by the operator: it is no GeneratorExit of a chain that is dropped.
    Args: emitting: what the former call returned first; None: the call begins.
    Raises: UserCodeError for whatever the operator raises.
    """
    calls.entered(node.spec.name)
    try:
        if emitting is None:
            emitting = iter(call())
        return emitting, next(emitting, END)
    except PASSED_ON:
        raise
    except BaseException as error:
        raise user_code_error(node.spec, node.operator, error) from error
    finally:
        calls.left()


def with_letters(
    node: ChainNode, poison: PoisonRecords, emitted: Any
) -> Iterator[Element | Tagged]:
    """What an operator that puts records aside has emitted, with its dead letters. A result that does not have the declared type, of the
    main output or of a side output, is put aside too.
    """
    letters = poison.take()
    if letters is not None:
        yield letters
    if emitted is None or emitted is END:
        return
    tag, batch = (emitted.tag, emitted.batch) if isinstance(emitted, Tagged) else (None, emitted)
    side = None if tag is None else node.sides.get(tag)
    kind: Any = node.spec.output_type if tag is None else side and side.element_type
    if kind is None or not isinstance(batch, RowBatch):
        yield emitted
        return
    for part in in_parts(lambda part: _of_type(part, kind), batch, poison.add):
        yield part if tag is None else Tagged(tag, part)
    letters = poison.take()
    if letters is not None:
        yield letters


def processed(node: ChainNode, batch: Batch, input_index: int) -> Emitted:
    """Convert, then process. An error in the conversion is reported for this operator, with the line that built it."""
    at_once = node.operator.records_at_once
    if at_once is None or len(batch) <= at_once or isinstance(batch, RowBatch):
        return _processed(node, batch, input_index)
    return _one_after_the_other(node, batch, input_index, at_once)


def _one_after_the_other(
    node: ChainNode, batch: ColumnBatch, input_index: int, at_once: int
) -> Emitted:
    for start in range(0, len(batch), at_once):
        part = batch.slice(start, min(start + at_once, len(batch)))
        yield from _processed(node, part, input_index)


def _processed(node: ChainNode, batch: Batch, input_index: int) -> Emitted:
    if node.poison is not None:
        return _processed_parts(node, node.poison, batch, input_index)
    try:
        converted = _converted(batch, node.operator, node.input_types, input_index)
    except PASSED_ON:
        raise
    except BaseException as error:
        # No record is named: the operator's current one belongs to an earlier batch.
        raise user_code_error(node.spec, None, error) from error
    return node.operator.process(converted, input_index)


def enforced(
    producer: ChainNode, element: Element, target: ChainTarget, consumer: ChainNode
) -> Element:
    """Apply the declared type inside a chain too: check, round and name as its coder would. Between two functions, values that do not
    fit pass.
    """
    if target.element_type is None or not isinstance(element, RowBatch):
        return element
    is_coded = not (producer.operator.calls_function and consumer.operator.calls_function)
    try:
        if is_coded:
            return enforce(element, target.element_type)
        return _fitting(element, target.element_type, consumer)
    except PASSED_ON:
        raise
    except BaseException as error:
        # No record is named: the operator's current one is the batch's last, whichever was wrong.
        raise user_code_error(producer.spec, None, error) from error


def _fitting(batch: RowBatch, kind: Any, consumer: ChainNode) -> RowBatch:
    """The batch for a function behind another one. The consumer remembers whether it has got values that do not fit."""
    fitting, has_misfits = enforce_where_it_fits(batch, kind)
    consumer.has_misfits |= has_misfits
    return fitting


def _processed_parts(
    node: ChainNode, poison: PoisonRecords, batch: Batch, input_index: int
) -> Emitted:
    """Convert what can be converted, and process it."""
    operator, types = node.operator, node.input_types

    def converted(part: Batch) -> Batch:
        made = _converted(part, operator, types, input_index)
        if isinstance(made, ColumnRows):
            made.decode_doubtful()
        return made

    for part in in_parts(converted, batch, poison.add):
        yield from operator.process(part, input_index)


def _of_type(batch: Batch, kind: Any) -> Batch:
    """The batch, if its records have the type, rounded and named as the type's coder does it. Raises: as `enforce`."""
    return enforce(batch, kind) if isinstance(batch, RowBatch) else batch


def _converted(batch: Batch, operator: Operator, types: Sequence[Any], input_index: int) -> Batch:
    """The batch in the form that the operator takes. The only conversion inside a task."""
    declared = types[input_index] if input_index < len(types) else None
    accepts = operator.accepts
    if isinstance(batch, ColumnBatch):
        if accepts is Accepts.ROWS:
            return operator.rows_from(batch, declared, input_index)
        return batch
    return to_columns(batch, declared) if accepts is Accepts.COLUMNS else batch
