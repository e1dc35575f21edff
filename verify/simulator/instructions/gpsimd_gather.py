"""GpSimdE: gathers within partitions and within groups of 16, and the largest K of a group. SBUF only."""

import numpy as np

from nkismith.verify.simulator.instruction import PLAIN, SBUF, instruction, out, tile
from nkismith.verify.simulator.instructions.gpsimd import CORE_PARTITIONS

UINT16, UINT32, BF16 = frozenset({"uint16"}), frozenset({"uint32"}), frozenset({"bfloat16"})
RUNS = (1, 2, 4, 8, 16, 32)
GATHER_MAX = 4096  # indices of one processor (nki.isa.local_gather)
N_GATHER_STEP = 512  # elements of one hardware instruction (nki.isa.nc_n_gather)
TOPK_MIN_N, TOPK_END_N, TOPK_END_K = 8, 65536, 32768  # (nki.isa.topk)


def check_groups(site, name):
    """Whole groups of 16 partitions."""
    if site.partitions(name) % CORE_PARTITIONS:
        raise site.refuse(
            "partition_groups", f"{name} has {site.partitions(name)} partitions", f"a multiple of {CORE_PARTITIONS}"
        )


def check_index(m, site, name, index, limit):
    """Indices are written and inside."""
    if m.taint(name) is not None:
        raise site.refuse("unwritten_index", f"{name} holds elements that nothing wrote", "fill all of it")
    if index.size and int(index.max()) >= limit:
        raise site.refuse("dynamic_bounds", f"{name}: {int(index.max())}, there are {limit} elements", "clamp it")


def snaked(values):
    """[groups, elements] of [P, N]: in each group of 16 partitions, element i is at [i mod 16, i div 16]."""
    groups = values.reshape(-1, CORE_PARTITIONS, values.shape[1])
    return groups.transpose(0, 2, 1).reshape(len(groups), -1)


def flow(m, dst, tainted):
    """Mark dst with a mask, or as written."""
    m.mark(dst, False if tainted is None or not tainted.any() else tainted)


@instruction(
    engines=("gpsimd",),
    limits=(
        "SBUF; index uint16, dst has the dtype of src_buffer",
        "partitions a multiple of 16, equal for src_buffer and index",
        f"num_elem_per_idx one of {RUNS}; at most {GATHER_MAX} indices a group",
    ),
    cost="150 + (num_valid_indices * e) / C with e = num_elem_per_idx, C = ((28 + 4e) / (4e)) / min(4 / itemsize, e)",
)
class local_gather:
    """In each group of 16 partitions: runs of num_elem_per_idx elements at the offsets of the group's index.

    The index is read partition first, element i at [i mod 16, i div 16]; an offset counts elements in a partition and
    is the same for all 16.
    """

    def signature(
        dst: out(SBUF),
        src_buffer: tile(SBUF),
        index: tile(SBUF, UINT16),
        num_elem_per_idx: PLAIN = 1,
        num_valid_indices: PLAIN = None,
    ): ...

    def check(site):
        check_groups(site, "src_buffer")
        for name in ("index", "dst"):
            if site.partitions(name) != site.partitions("src_buffer"):
                raise site.refuse(
                    "operand_shapes",
                    f"{name} is {site.shape(name)}, src_buffer {site.shape('src_buffer')}",
                    "equal partitions",
                )
        if site.dtype("dst") != site.dtype("src_buffer"):
            raise site.refuse("dtype", f"{site.dtype('src_buffer')} to {site.dtype('dst')}", "dst has src's dtype")
        run, held = site.attr("num_elem_per_idx"), CORE_PARTITIONS * site.free("index")
        if run not in RUNS:
            raise site.refuse("gather_run", f"num_elem_per_idx={run}", f"one of {RUNS}")
        count = valid(site)
        if not isinstance(count, int) or not 1 <= count <= min(held, GATHER_MAX):
            raise site.refuse(
                "gather_count", f"{count} indices of {held} a group", f"1 to {min(held, GATHER_MAX)} a group"
            )
        if site.free("dst") != count * run:
            raise site.refuse(
                "operand_shapes", f"dst has {site.free('dst')} elements a partition", f"{count} * {run} = {count * run}"
            )

    def run(m, site):
        data = m.raw("src_buffer")
        offsets = gather_offsets(m, site)
        m.put_raw("dst", np.take_along_axis(data, offsets, axis=1))

    def taint(m, site):
        tainted = m.taint("src_buffer")
        flow(m, "dst", None if tainted is None else np.take_along_axis(tainted, gather_offsets(m, site), axis=1))


def valid(site):
    """Indices a group that count."""
    given = site.attr("num_valid_indices")
    return CORE_PARTITIONS * site.free("index") if given is None else given


def gather_offsets(m, site):
    """Element offsets of every partition, [P, indices * run]."""
    run = site.attr("num_elem_per_idx")
    index = snaked(m.raw("index"))[:, : valid(site)].astype(np.int64)
    check_index(m, site, "index", index + run - 1, site.free("src_buffer"))
    offsets = (index[:, :, None] + np.arange(run)).reshape(len(index), -1)
    return np.repeat(offsets, CORE_PARTITIONS, axis=0)


@instruction(
    engines=("gpsimd",),
    limits=("SBUF; indices uint32, dst has the dtype of data", "equal partitions; dst and indices equal free sizes"),
    cost=f"not documented; one hardware instruction for every {N_GATHER_STEP} elements of dst",
)
class nc_n_gather:
    """dst[p, i] = data[p, indices[p, i]] over the flattened free dimensions, each partition for itself."""

    def signature(dst: out(SBUF), data: tile(SBUF), indices: tile(SBUF, UINT32)): ...

    def check(site):
        if site.dtype("dst") != site.dtype("data"):
            raise site.refuse("dtype", f"{site.dtype('data')} to {site.dtype('dst')}", "dst has the dtype of data")
        if len({site.partitions(n) for n in ("dst", "data", "indices")}) > 1 or site.free("dst") != site.free(
            "indices"
        ):
            raise site.refuse(
                "operand_shapes",
                f"dst {site.shape('dst')}, data {site.shape('data')}, indices {site.shape('indices')}",
                "equal partitions; as many elements in dst as indices",
            )

    def run(m, site):
        index = m.raw("indices").astype(np.int64)
        check_index(m, site, "indices", index, site.free("data"))
        m.put_raw("dst", np.take_along_axis(m.raw("data"), index, axis=1))

    def taint(m, site):
        tainted = m.taint("data")
        index = m.raw("indices").astype(np.int64)
        flow(m, "dst", None if tainted is None else np.take_along_axis(tainted, index, axis=1))


@instruction(
    engines=("gpsimd",),
    since="2.32",
    limits=(
        "SBUF; src and val_dst bfloat16, idx_dst uint32 shaped like val_dst",
        "partitions a multiple of 16",
        f"{TOPK_MIN_N} <= n < {TOPK_END_N}; K = free size of val_dst, K < {TOPK_END_K}, K <= n",
        "src free size at least ceil(n / 16)",
    ),
    cost="4 n + K",
)
class topk:
    """The K largest of the first n elements of each group of 16 partitions, and where they are.

    Elements and results lie in a snake: element j at partition j mod 16, column j div 16; indices count along it.
    K is the free size of val_dst, of which only the first ceil(K / 16) columns are written. Results ascend; with
    sorted=True they descend. The documentation does not say how equal values are ordered.
    """

    def signature(
        val_dst: out(SBUF, BF16), idx_dst: out(SBUF, UINT32), src: tile(SBUF, BF16), n: PLAIN, sorted: PLAIN = False
    ): ...

    def check(site):
        n, k = site.attr("n"), site.free("val_dst")
        check_groups(site, "src")
        for name in ("val_dst", "idx_dst"):
            if (site.partitions(name), site.free(name)) != (site.partitions("src"), k):
                raise site.refuse(
                    "operand_shapes", f"{name} is {site.shape(name)}", f"({site.partitions('src')}, {k}) as val_dst"
                )
        if not isinstance(n, int) or not TOPK_MIN_N <= n < TOPK_END_N:
            raise site.refuse("topk_size", f"n={n}", f"{TOPK_MIN_N} to {TOPK_END_N - 1}")
        if k >= TOPK_END_K or k > n:
            raise site.refuse("topk_size", f"K={k} of n={n}", f"K at most n and below {TOPK_END_K}")
        if site.free("src") * CORE_PARTITIONS < n:
            raise site.refuse(
                "operand_shapes",
                f"src has {site.free('src')} columns for n={n}",
                f"{-(-n // CORE_PARTITIONS)} at least",
            )

    def run(m, site):
        n, k = site.attr("n"), site.free("val_dst")
        values = snaked(m.f32("src"))[:, :n]
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        if not site.attr("sorted"):
            order = order[:, ::-1]
        for name, found in (("val_dst", np.take_along_axis(values, order, axis=1)), ("idx_dst", order)):
            view = m.view(name)
            held = view.reshape(site.partitions(name), -1).copy()
            columns = -(-k // CORE_PARTITIONS)
            padded = np.zeros((len(found), columns * CORE_PARTITIONS), found.dtype)
            padded[:, :k] = found
            snake = padded.reshape(len(found), columns, CORE_PARTITIONS).transpose(0, 2, 1)
            held[:, :columns] = m.cast(snake.reshape(-1, columns), site.dtype(name))
            view[...] = held.reshape(view.shape)

    def taint(m, site):
        # Columns past the results are documented as left alone, not forgotten: only read poison flows.
        tainted = m.taint("src")
        for name in ("val_dst", "idx_dst"):
            mask = np.zeros((site.partitions(name), site.free(name)), bool)
            if tainted is not None:
                groups = snaked(tainted)[:, : site.attr("n")].any(axis=1)
                mask |= np.repeat(groups, CORE_PARTITIONS)[:, None]
            flow(m, name, mask)
