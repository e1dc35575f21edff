"""VectorE: selection by predicate and by range, moves between lanes."""

import numpy as np

from nkismith.verify.simulator.dtypes import FLOATS
from nkismith.verify.simulator.enums import reduce_cmd
from nkismith.verify.simulator.hardware import QUADRANT
from nkismith.verify.simulator.instruction import (
    ENUM,
    NUMBERS,
    OP,
    PLAIN,
    DefaultOperator,
    inout,
    instruction,
    out,
    tile,
    tile_or_number,
    vector,
)
from nkismith.verify.simulator.instructions.accumulators import accumulate, check_accumulator, mark_read_out
from nkismith.verify.simulator.instructions.checks import (
    FLOAT_VECTOR,
    check_column,
    check_one_psum,
    check_rank,
    check_same_dtype,
    check_same_elements,
    check_vectors,
)
from nkismith.verify.simulator.operators import ALU

RESET_REDUCE = reduce_cmd.reset_reduce
IDLE = reduce_cmd.idle
MAXIMUM = DefaultOperator("maximum")
FP32_MIN = float(np.finfo(np.float32).min)
PREDICATE = frozenset({"uint8", "uint16", "uint32", "bool_"})
SELECT_PREDICATE = frozenset({"int8", "uint8", "int16", "uint16", "bool_"})
SELECT_DTYPES = NUMBERS - {"tfloat32", "int32", "uint32"}
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
LARGEST_INDEX = 1 << 24  # integers up to here are exact in float32
KEEP = 255  # entry of a shuffle mask that leaves the partition as it is


@instruction(
    engines=("vector",),
    taint="run",
    limits=(
        "src and predicate not both in PSUM",
        "src a tile of dst's dtype, or a number: float into floats, int into integers",
        "reverse_pred only with a number",
        "at most 4 dimensions",
    ),
    cost="max(64, N) with one input in PSUM, else max(64, 2N)",
)
class tensor_copy_predicated:
    """dst = src where predicate is not 0; elsewhere dst stays as it is."""

    def signature(
        dst: inout(indirect=True),
        src: tile_or_number(),
        predicate: tile(dtypes=PREDICATE, indirect=True),
        reverse_pred: PLAIN = False,
    ): ...

    def check(site):
        check_same_elements(site, "dst", "predicate")
        check_rank(site, 4, "dst", "src", "predicate")
        if site.has("src"):
            check_same_elements(site, "dst", "src")
            check_same_dtype(site, "src", "dst")
            check_one_psum(site, "src", "predicate")
            if site.attr("reverse_pred"):
                raise site.refuse("reverse", "reverse_pred with a tile as src", "swap the predicate, or use a number")
            return
        value = site.attr("src")
        if value is None:
            raise site.refuse("operand_missing", "src is None", "a tile or a number")
        if isinstance(value, float) != (site.dtype("dst") in FLOATS):
            kind = "float" if isinstance(value, float) else "int"
            raise site.refuse("dtype", f"the {kind} {value} into {site.dtype('dst')}", "a number of dst's kind")

    def run(m, site):
        chosen = (m.raw("predicate") != 0) != bool(site.attr("reverse_pred"))
        source_taint = m.taint("src") if site.has("src") else None
        mask = chosen_taint(m, chosen, source_taint, m.taint("dst"))
        if site.has("src"):
            source = m.raw("src")
        else:
            number = np.asarray([[site.attr("src")]], np.float32 if site.dtype("dst") in FLOATS else np.int64)
            source = m.cast(number, site.dtype("dst"))
        m.put_raw("dst", np.where(chosen, source, m.raw("dst")))
        m.mark("dst", mask)


def chosen_taint(m, chosen, yes, no):
    """Unwritten elements of a selection: of the side that was chosen, and all that an unwritten predicate chose."""
    predicate = m.taint("predicate")
    if yes is None and no is None and predicate is None:
        return False
    clean = np.zeros((1, 1), bool)
    mask = np.where(chosen, clean if yes is None else yes, clean if no is None else no)
    return mask if predicate is None else mask | predicate


@instruction(
    engines=("vector",),
    taint="run",
    limits=(
        "bounds are (P, 1) float32 tiles",
        "comparisons: equal, less, less_equal, greater, greater_equal",
        "on_false_value is the smallest float32",
        "range_start + N <= 2^24",
        "reduce_op: maximum",
    ),
    cost="max(64, N)",
)
class range_select:
    """dst = on_true_tile where (i comp_op0 bound0) and (i comp_op1 bound1), else on_false_value.

    i is range_start plus the index along the free axes. The maximum of each lane goes into the accumulator of VectorE
    and, if asked for, to reduce_res. In 16-bit and fp8 tiles the false value becomes -inf: keep reduce_res float32.
    """

    def signature(
        dst: out(dtypes=FLOATS),
        on_true_tile: tile(dtypes=FLOATS),
        comp_op0: OP,
        comp_op1: OP,
        bound0: tile(dtypes=FLOAT_VECTOR),
        bound1: tile(dtypes=FLOAT_VECTOR),
        reduce_cmd: ENUM = RESET_REDUCE,
        reduce_res: out(dtypes=FLOATS, optional=True) = None,
        reduce_op: OP = MAXIMUM,
        range_start: PLAIN = 0,
        on_false_value: PLAIN = FP32_MIN,
    ): ...

    def check(site):
        for name in ("comp_op0", "comp_op1"):
            if site.attr(name) not in COMPARISONS:
                raise site.refuse("operator", f"{name}={site.attr(name)}", f"one of {', '.join(COMPARISONS)}")
        check_same_elements(site, "dst", "on_true_tile")
        for name in ("bound0", "bound1"):
            check_column(site, name, "on_true_tile")
        check_maximum(site)
        check_accumulator(site, ("idle", "reset", "reduce", "reset_reduce"), like="on_true_tile")
        start = site.attr("range_start")
        if not isinstance(start, int):
            raise site.refuse("range_start", f"range_start={start!r}", "an int known while building")
        if start + site.free("dst") > LARGEST_INDEX or start < -LARGEST_INDEX:
            raise site.refuse(
                "range_start",
                f"indices {start} to {start + site.free('dst') - 1}",
                f"between -2^24 and 2^24 = {LARGEST_INDEX}: they are compared in float32",
            )
        other = site.attr("on_false_value")
        if not isinstance(other, int | float) or np.float32(other) != np.float32(FP32_MIN):
            raise site.refuse("on_false_value", f"on_false_value={site.attr('on_false_value')}", f"only {FP32_MIN}")

    def run(m, site):
        kept, data = in_range(m, site), m.taint("on_true_tile")
        mask = False if data is None else data & kept
        for name in ("bound0", "bound1"):
            if m.taint(name) is not None:
                mask = mask | np.broadcast_to(m.taint(name), kept.shape)
        select(m, site, np.where(kept, m.f32("on_true_tile"), np.float32(FP32_MIN)), mask, "on_true_tile")


def in_range(m, site):
    """Where range_select keeps its tile: a mask [P, N]."""
    index = np.arange(site.attr("range_start"), site.attr("range_start") + site.free("dst")).astype(np.float32)[None]
    first = ALU[site.attr("comp_op0")].apply(index, m.f32("bound0").reshape(-1, 1))
    second = ALU[site.attr("comp_op1")].apply(index, m.f32("bound1").reshape(-1, 1))
    return (first != 0) & (second != 0)


def check_maximum(site):
    """The only reduction that selection has."""
    if site.attr("reduce_op") not in (None, "maximum"):
        raise site.refuse("operator", f"reduce_op={site.attr('reduce_op')}", "nl.maximum")


def select(m, site, result, mask, like):
    """Write what was selected, reduce it, and mark both; what was not selected was not read."""
    m.put("dst", result)
    rows = mask.any(axis=1) if isinstance(mask, np.ndarray) else False
    accumulate(m, site, result, "maximum", engine="vector", like=like, tainted=rows)
    m.mark("dst", mask)
    mark_read_out(m, site, like, "vector")


@instruction(
    engines=("vector",),
    taint="run",
    limits=(
        "on_true and predicate not both in PSUM",
        "on_true: not tfloat32, int32, uint32",
        "on_false: a number or a (P, 1) tile",
        "reduce_op: maximum",
    ),
)
class select_reduce:
    """dst = on_true where predicate is not 0, else on_false; reverse_pred turns the predicate round.

    reduce_cmd takes the maximum of each lane's results into the accumulator of VectorE.
    """

    def signature(
        dst: out(dtypes=NUMBERS),
        predicate: tile(dtypes=SELECT_PREDICATE),
        on_true: tile(dtypes=SELECT_DTYPES),
        on_false: vector(),
        reduce_res: out(dtypes=FLOATS, optional=True) = None,
        reduce_cmd: ENUM = IDLE,
        reduce_op: OP = MAXIMUM,
        reverse_pred: PLAIN = False,
    ): ...

    def check(site):
        check_same_elements(site, "dst", "predicate", "on_true")
        check_vectors(site, "on_true")
        check_one_psum(site, "on_true", "predicate")
        check_maximum(site)
        check_accumulator(site, ("idle", "reduce", "reset_reduce"), like="on_true")
        if not site.has("on_false") and site.attr("on_false") is None:
            raise site.refuse("operand_missing", "on_false is None", "a number or a (P, 1) tile")

    def run(m, site):
        chosen = (m.raw("predicate") != 0) != bool(site.attr("reverse_pred"))
        mask = chosen_taint(m, chosen, m.taint("on_true"), m.taint("on_false") if site.has("on_false") else None)
        select(m, site, np.where(chosen, m.f32("on_true"), m.vector("on_false")), mask, "on_true")


@instruction(
    engines=("vector",),
    limits=(
        "shuffle_mask: 32 entries, a partition of the quadrant (0..31) or 255",
        "dst and src: one dtype, equal elements a partition",
        "start partitions by ceil(max partitions / 32) * 32: 96 and 128 start at 0, 64 at 0 or 64, 32 at any quadrant",
    ),
    cost="max(64, N)",
)
class nc_stream_shuffle:
    """In each quadrant of 32 partitions, dst[i] = src[shuffle_mask[i]], in place too; 255 leaves dst[i] as it is."""

    def signature(dst: out(), src: tile(), shuffle_mask: PLAIN): ...

    def accumulates(site):
        return KEEP in site.attr("shuffle_mask")  # only then does what dst held matter

    def check(site):
        mask = site.attr("shuffle_mask")
        entries = mask if isinstance(mask, tuple) else (mask,)
        wrong = [i for i in entries if type(i) is not int or not (0 <= i < QUADRANT or i == KEEP)]
        if len(entries) != QUADRANT or wrong:
            seen = f"{len(entries)} entries" + (f", {wrong[0]!r} is one" if wrong else "")
            raise site.refuse("shuffle_mask", f"shuffle_mask has {seen}", f"{QUADRANT} ints, each 0..31 or {KEEP}")
        check_same_dtype(site, "src", "dst")
        if site.free("src") != site.free("dst"):
            raise site.refuse(
                "operand_shapes", f"src is {site.shape('src')}, dst {site.shape('dst')}", "equal free sizes"
            )
        active = -(-max(site.partitions("src"), site.partitions("dst")) // QUADRANT) * QUADRANT
        allowed = {32: (0, 32, 64, 96), 64: (0, 64)}.get(active, (0,))
        for name in ("src", "dst"):
            address = site.buffer(name).address
            start = site.operand(name).start + (address[0] if address else 0)
            if start not in allowed:
                raise site.refuse(
                    "start_partition", f"{name} starts on {start}, {active} partitions active", f"one of {allowed}"
                )
        if any(source >= site.partitions("src") for _, source in shuffled(mask, site.partitions("dst"))):
            raise site.refuse(
                "shuffle_mask", f"the mask reads beyond the {site.partitions('src')} partitions of src", "or use 255"
            )

    def run(m, site):
        target, source = rows_of_mask(site)
        values, result = m.raw("src"), m.raw("dst").copy()
        result[target] = values[source]
        m.put_raw("dst", result)

    def taint(m, site):
        old = m.current_taint("dst") if KEEP in site.attr("shuffle_mask") else None
        if m.taint("src") is None and old is None:
            m.mark("dst", False)
            return
        target, source = rows_of_mask(site)
        mask = np.zeros((site.partitions("dst"), site.free("dst")), bool)
        if old is not None:
            mask |= old.reshape(mask.shape)
        mask[target] = False if m.taint("src") is None else m.taint("src")[source]
        m.mark("dst", mask)


def shuffled(mask, partitions):
    """(partition of dst, partition of src) pairs that a shuffle mask moves."""
    for partition in range(partitions):
        quadrant, lane = divmod(partition, QUADRANT)
        if mask[lane] != KEEP:
            yield partition, quadrant * QUADRANT + mask[lane]


def rows_of_mask(site):
    """The pairs of `shuffled` as two index lists."""
    pairs = list(shuffled(site.attr("shuffle_mask"), site.partitions("dst")))
    return [t for t, _ in pairs], [s for _, s in pairs]
