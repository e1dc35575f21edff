"""GpSimdE: index generation, masks by index, segments, reductions over partitions. SBUF only."""

import numpy as np

from nkismith.verify.simulator.dtypes import INTEGERS
from nkismith.verify.simulator.instruction import NUMBERS, OP, PLAIN, SBUF, DefaultOperator, instruction, out, tile
from nkismith.verify.simulator.instructions.checks import check_rank, check_same_elements
from nkismith.verify.simulator.instructions.control import wrapped
from nkismith.verify.simulator.operators import ALU
from nkismith.verify.simulator.scalars import INT32_MAX, INT32_MIN
from nkismith.verify.simulator.trace import ScalarRef

PATTERN_DIMS = 4
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
SEGMENT_DTYPES = frozenset({"float32", "int32"})
CORE_PARTITIONS = 16  # partitions behind one of the eight processors (trainium2_arch)


EQUAL = DefaultOperator("equal")


def check_affine(site, *names):
    """The pattern [[step, count], ...] has at most 4 dimensions and as many values as each tile has a partition."""
    pattern = site.attr("pattern")
    pairs = isinstance(pattern, tuple) and all(isinstance(p, tuple) and len(p) == 2 for p in pattern)
    if (
        not pairs
        or not 1 <= len(pattern) <= PATTERN_DIMS
        or any(type(n) is not int or n < 1 or not int32(step) for step, n in pattern)
    ):
        raise site.refuse("affine_pattern", f"pattern={pattern}", f"1 to {PATTERN_DIMS} pairs [int32 step, count]")
    counts = int(np.prod([n for _, n in pattern]))
    for name in names:
        if site.free(name) != counts:
            raise site.refuse(
                "operand_shapes", f"the pattern has {counts} values, {name} {site.free(name)} a partition", "match them"
            )
    for name in ("offset", "channel_multiplier"):
        if not int32(site.attr(name)):
            raise site.refuse("affine_pattern", f"{name}={site.attr(name)!r}", "an int32")


def int32(value):
    """Is it an int of 32 bits, or one that the device computes?"""
    return isinstance(value, ScalarRef) or (isinstance(value, int) and INT32_MIN <= value <= INT32_MAX)


def affine(m, site, partitions):
    """offset + p * channel_multiplier + the steps of the pattern, in wrapping int32: int64 [P, N]."""
    steps = np.zeros((1,), np.int64)
    for step, count in site.attr("pattern"):
        steps = (steps[:, None] + np.arange(count, dtype=np.int64) * m.value(step)).reshape(-1)
    rows = np.arange(partitions, dtype=np.int64)[:, None] * m.value(site.attr("channel_multiplier"))
    return wrapped(m.value(site.attr("offset")) + rows + steps[None, :], "int32")


@instruction(
    engines=("gpsimd",),
    limits=("dst in SBUF", f"pattern of at most {PATTERN_DIMS} [step, count], as many values as dst has a partition"),
    cost="150 + N",
)
class iota:
    """dst = offset + p * channel_multiplier + the steps of a pattern [[step, count], ...], in int32, cast to dst."""

    def signature(dst: out(SBUF, NUMBERS), pattern: PLAIN, offset: PLAIN = 0, channel_multiplier: PLAIN = 0): ...

    def check(site):
        check_affine(site, "dst")

    def run(m, site):
        m.put("dst", affine(m, site, site.partitions("dst")))


@instruction(
    engines=("gpsimd",),
    limits=("dst and on_true_tile in SBUF", f"cmp_op {', '.join(COMPARISONS)}", "on_false_value a float32 number"),
    cost="150 + N",
)
class affine_select:
    """dst = on_true_tile where cmp_op(affine value, 0), else on_false_value.

    The affine value is that of iota: offset + p * channel_multiplier + the steps of the pattern.
    """

    def signature(
        dst: out(SBUF, NUMBERS),
        pattern: PLAIN,
        channel_multiplier: PLAIN,
        on_true_tile: tile(SBUF, NUMBERS),
        on_false_value: PLAIN,
        cmp_op: OP = EQUAL,
        offset: PLAIN = 0,
    ): ...

    def check(site):
        check_affine(site, "dst", "on_true_tile")
        check_same_elements(site, "dst", "on_true_tile")
        if site.attr("cmp_op") not in COMPARISONS:
            raise site.refuse("operator", f"cmp_op={site.attr('cmp_op')}", f"one of {', '.join(COMPARISONS)}")
        if not isinstance(site.attr("on_false_value"), int | float):
            raise site.refuse("operand_type", f"on_false_value={site.attr('on_false_value')!r}", "a number")

    def run(m, site):
        kept = selected(m, site)
        dtype, other = site.dtype("dst"), np.float32(site.attr("on_false_value"))
        if dtype == site.dtype("on_true_tile"):
            m.put_raw("dst", np.where(kept, m.raw("on_true_tile"), m.cast(other.reshape(1, 1), dtype)))
        else:
            m.put("dst", np.where(kept, m.f32("on_true_tile"), other))

    def taint(m, site):
        tainted = m.taint("on_true_tile")
        m.mark("dst", False if tainted is None else tainted & selected(m, site))


def selected(m, site):
    """Where the affine comparison holds, [P, N]."""
    compare = getattr(np, site.attr("cmp_op"))
    return compare(affine(m, site, site.partitions("dst")), 0)


@instruction(
    engines=("gpsimd",),
    taint="all",
    limits=("segment_ids (1, n), dst (1, 2, n), float32 or int32, SBUF",),
)
class sequence_bounds:
    """For each element, first index and end (exclusive) of the run of equal segment ids it is in; id 0 is padding:
    start n, end -1."""

    def signature(dst: out(SBUF, SEGMENT_DTYPES), segment_ids: tile(SBUF, SEGMENT_DTYPES)): ...

    def check(site):
        n = site.free("segment_ids")
        if site.partitions("segment_ids") != 1 or site.partitions("dst") != 1 or site.free("dst") != 2 * n:
            raise site.refuse(
                "operand_shapes",
                f"segment_ids {site.shape('segment_ids')}, dst {site.shape('dst')}",
                f"segment_ids (1, n) and dst (1, 2, n); here dst (1, 2, {n})",
            )

    def run(m, site):
        ids = m.f32("segment_ids")[0]
        n = len(ids)
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        lengths = np.diff(np.concatenate([starts, [n]]))
        padding = ids == 0
        first = np.where(padding, n, np.repeat(starts, lengths))
        end = np.where(padding, -1, np.repeat(starts + lengths, lengths))
        m.put("dst", np.stack([first, end]).astype(np.int64).reshape(1, -1))


@instruction(
    engines=("gpsimd",),
    limits=(
        "src float32 or int32, dst int32, SBUF; dst has one element a partition more than src",
        "only partitions 0, 16, 32, ... are read and written",
    ),
)
class nonzero_with_count:
    """On partitions 0, 16, 32, ...: the indices (plus index_offset) of the non-zero elements, then padding_val, and
    their count in the last element. Other partitions of dst keep what they hold."""

    def signature(
        dst: out(SBUF, frozenset({"int32"})),
        src: tile(SBUF, SEGMENT_DTYPES),
        index_offset: PLAIN = 0,
        padding_val: PLAIN = -1,
    ): ...

    def check(site):
        if (site.partitions("dst"), site.free("dst")) != (site.partitions("src"), site.free("src") + 1):
            raise site.refuse(
                "operand_shapes",
                f"src is {site.shape('src')}, dst {site.shape('dst')}",
                f"dst of {site.partitions('src')} partitions and {site.free('src') + 1} elements each",
            )
        for name in ("index_offset", "padding_val"):
            value = site.attr(name)
            if not isinstance(value, ScalarRef) and not (isinstance(value, int) and -(1 << 31) <= value < 1 << 31):
                raise site.refuse("operand_type", f"{name}={site.attr(name)!r}", "an int32")

    def run(m, site):
        view = m.view("dst")
        values = view.reshape(site.partitions("dst"), -1).copy()
        data = m.raw("src")
        for p in range(0, len(data), CORE_PARTITIONS):
            found = np.flatnonzero(data[p])
            values[p] = m.value(site.attr("padding_val"))
            values[p, : len(found)] = found + m.value(site.attr("index_offset"))
            values[p, -1] = len(found)
        view[...] = values.reshape(view.shape)

    def taint(m, site):
        # What the instruction leaves alone is documented as such, not forgotten: only read poison flows.
        mask = np.zeros((site.partitions("dst"), site.free("dst")), bool)
        tainted = m.taint("src")
        if tainted is not None:
            mask[::CORE_PARTITIONS] = tainted[::CORE_PARTITIONS].any(axis=1, keepdims=True)
        m.mark("dst", mask if mask.any() else False)


PARTITION_REDUCTIONS = {
    "add": "add", "average": "add", "mean": "add", "max": "maximum", "maximum": "maximum", "bitwise_or": "bitwise_or",
    "bitwise_and": "bitwise_and", "bitwise_xor": "bitwise_xor",
}  # fmt: skip


@instruction(
    engines=("gpsimd",),
    limits=("SBUF; at most 5 dimensions", "op: add, mean (average), max, bitwise_or, bitwise_and, bitwise_xor"),
)
class tensor_partition_reduce:
    """dst = data reduced over the partitions, one partition left. Integers are exact, floats float32."""

    def signature(dst: out(SBUF, NUMBERS), op: OP, data: tile(SBUF, NUMBERS)): ...

    def check(site):
        name = site.attr("op")
        if name not in PARTITION_REDUCTIONS:
            raise site.refuse("operator", f"op={name}", "nl.add, nl.mean, nl.max or a bit-wise operator")
        check_rank(site, 5, "dst", "data")
        if (site.partitions("dst"), site.free("dst")) != (1, site.free("data")):
            raise site.refuse(
                "operand_shapes", f"data is {site.shape('data')}, dst {site.shape('dst')}", "dst (1, ...) as data"
            )
        if ALU[PARTITION_REDUCTIONS[name]].kind == "bitvec":
            for operand in ("dst", "data"):
                if site.dtype(operand) not in INTEGERS or site.dtype("dst") != site.dtype("data"):
                    raise site.refuse("dtype", f"{operand} is {site.dtype(operand)} under {name}", "one integer dtype")

    def run(m, site):
        name = site.attr("op")
        op = ALU[PARTITION_REDUCTIONS[name]]
        if op.kind == "bitvec":
            m.put_raw("dst", op.apply.reduce(m.raw("data"), axis=0, keepdims=True))
            return
        exact = site.dtype("data") in INTEGERS and name not in ("average", "mean")
        values = m.raw("data").astype(np.int64) if exact else m.f32("data")
        result = op.apply.reduce(values, axis=0, keepdims=True, dtype=values.dtype)
        m.put("dst", result / np.float32(len(values)) if name in ("average", "mean") else result)

    def taint(m, site):
        tainted = m.taint("data")
        m.mark("dst", False if tainted is None else tainted.any(axis=0, keepdims=True))
