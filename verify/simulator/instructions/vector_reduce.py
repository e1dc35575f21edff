"""VectorE: reductions along the free axes."""

import numpy as np

from nkismith.verify.simulator.instruction import OP, PLAIN, instruction, out, tile
from nkismith.verify.simulator.instructions.checks import check_op
from nkismith.verify.simulator.operators import ALU


@instruction(engines=("vector",), taint="rows", cost="max(64, N)")
class tensor_reduce:
    """Reduce the last free axes of data with one operator; axis 0 (partitions) never."""

    def signature(dst: out(), op: OP, data: tile(), axis: PLAIN, negate: PLAIN = False, keepdims: PLAIN = False): ...

    def check(site):
        check_op(site, "op", ("arithmetic", "bitvec"), reduces=True)
        axes, rank = reduce_axes(site), len(site.shape("data"))
        if axes != tuple(range(rank - len(axes), rank)) or 0 in axes:
            raise site.refuse("reduce_axis", f"axis {axes} of shape {site.shape('data')}", "reduce the last free axes")
        kept = int(np.prod(site.shape("data")[1 : rank - len(axes)]))
        if (site.partitions("dst"), site.free("dst")) != (site.partitions("data"), kept):
            raise site.refuse("operand_shapes", f"dst is {site.shape('dst')}", f"{kept} elements a partition")

    def run(m, site):
        shape, axes = site.shape("data"), reduce_axes(site)
        op = ALU[site.attr("op")]
        rows = int(np.prod(shape[: len(shape) - len(axes)]))
        if op.kind == "bitvec":
            m.put_raw("dst", op.apply.reduce(m.raw("data").reshape(rows, -1), axis=1))
            return
        values = m.f32("data").reshape(rows, -1)
        with np.errstate(all="ignore"):
            result = reduce_rows(op, values)
        m.put("dst", -result if site.attr("negate") else result)


def reduce_axes(site):
    """Axes as a sorted tuple of non-negative ints."""
    axis = site.attr("axis")
    rank = len(site.shape("data"))
    return tuple(sorted(a % rank if -rank <= a < 0 else a for a in (axis if isinstance(axis, tuple) else (axis,))))


def reduce_rows(op, values):
    """Reduce [R, N] float32 along the free axis."""
    if isinstance(op.apply, np.ufunc):
        return op.apply.reduce(values, axis=1, dtype=np.float32)
    result = values[:, 0]
    for column in range(1, values.shape[1]):
        result = op.apply(result, values[:, column])
    return result
