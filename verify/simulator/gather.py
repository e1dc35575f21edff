"""Tensor indirection while executing: columns of a tile taken or written at run-time offsets (NeuronCore-v4).

The partitions of a group share their offsets: 16 on VectorE, ScalarE and GpSimdE, 32 on TensorE. They are read in
snake order, element i of the view at index[i mod group, i div group]. Source: NkiTensor.indirect (NKI 0.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkismith.verify.simulator.trace import Operand

if TYPE_CHECKING:
    from nkismith.verify.simulator.machine import Machine

GROUP, TENSOR_GROUP = 16, 32


def is_gather(operand: Operand) -> bool:
    """Is the operand an indirect view?"""
    return operand.dynamic is not None and operand.dynamic.kind == "gather"


def columns(operand: Operand) -> Operand:
    """All columns that an indirect view may reach; any other operand as it is."""
    if not is_gather(operand):
        return operand
    assert operand.dynamic is not None
    return operand._replace(pattern=((1, operand.dynamic.limit),), dynamic=None)


def offsets(machine: Machine, operand: Operand) -> np.ndarray:
    """Column of each element, [P, N]. Raises LegalityError for an unwritten index or one out of bounds."""
    term = operand.dynamic
    assert term is not None and term.index is not None
    if machine.memory.taint(term.index) is not None:
        raise machine.site.refuse("unwritten_index", "an index tile holds elements that nothing wrote", "fill it")
    index = machine.memory.view(term.index).reshape(term.index.partitions, -1).astype(np.int64)
    group = min(TENSOR_GROUP if machine.site.engine == "tensor" else GROUP, index.shape[0])
    snaked = index.reshape(-1, group, index.shape[1]).transpose(0, 2, 1).reshape(index.shape[0] // group, -1)
    chosen = snaked[:, : operand.free]
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < term.limit):
        raise machine.out_of_bounds("index", f"offsets {chosen.min()} .. {chosen.max()}, limit {term.limit}")
    return np.repeat(chosen, operand.partitions // len(chosen), axis=0)


def take(machine: Machine, operand: Operand, values: np.ndarray) -> np.ndarray:
    """Elements of `values` [P, columns] that an indirect view names; for any other operand the values."""
    return np.take_along_axis(values, offsets(machine, operand), axis=1) if is_gather(operand) else values


def scatter(machine: Machine, operand: Operand, values: np.ndarray) -> None:
    """Write values in storage dtype to the columns that an indirect view names; of equal columns the last stays."""
    where = offsets(machine, operand)
    view = machine.memory.view(columns(operand)).reshape(operand.partitions, -1)
    np.put_along_axis(view, where, values.reshape(where.shape), axis=1)


def mark(machine: Machine, operand: Operand, tainted: np.ndarray | bool) -> None:
    """Say what `scatter` left: False, or a mask [P, N]."""
    every = columns(operand)
    mask = machine.memory.taint(every)
    if mask is None:
        if not np.any(tainted):
            return
        mask = np.zeros(every.shape, bool)
    where = offsets(machine, operand)
    left = tainted if isinstance(tainted, bool) else tainted.reshape(where.shape)
    np.put_along_axis(mask.reshape(operand.partitions, -1), where, left, axis=1)
    machine.memory.mark(every, mask)
