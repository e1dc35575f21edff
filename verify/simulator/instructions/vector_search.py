"""VectorE: the largest eight values of a partition, where values stand, and their replacement."""

import numpy as np

from nkismith.verify.simulator.instruction import NUMBERS, PLAIN, instruction, out, tile
from nkismith.verify.simulator.instructions.checks import check_free, check_rank, check_same_elements

INDEX_DTYPES = frozenset({"uint16", "uint32"})
SEARCH_MIN, SEARCH_MAX = 8, 16384


@instruction(
    engines=("vector",),
    taint="rows",
    limits=("8 to 16384 elements a partition", "src: at most 3 dimensions", "dst: (P, 8)"),
    cost="N",
)
class max8:
    """The 8 largest values of each partition in descending order."""

    def signature(dst: out(dtypes=NUMBERS), src: tile(dtypes=NUMBERS)): ...

    def check(site):
        check_search(site, "src")
        check_eight(site, "dst", "src")

    def run(m, site):
        values = m.f32("src")
        top = np.partition(values, values.shape[1] - 8, axis=1)[:, -8:]
        m.put("dst", np.sort(top, axis=1)[:, ::-1])


def check_search(site, name):
    """Limits of the instructions that search a partition."""
    check_free(site, name, SEARCH_MIN, SEARCH_MAX)
    check_rank(site, 3, name)


def check_eight(site, name, like):
    """A tensor has 8 elements in each partition of `like`."""
    if (site.partitions(name), site.free(name)) != (site.partitions(like), 8):
        raise site.refuse("operand_shapes", f"{name} is {site.shape(name)}", f"({site.partitions(like)}, 8)")


def first_matches(data, vals, order):
    """Position in data of each of 8 values [P, 8], -1 for none; equal values take successive positions in `order`."""
    rows = np.arange(len(data))
    free = np.ones(data.shape, bool)
    positions = np.full(vals.shape, -1, np.int64)
    for slot in order:
        hit = free & (data == vals[:, slot : slot + 1])
        at = hit.argmax(axis=1)
        found = hit[rows, at]
        positions[found, slot] = at[found]
        free[rows[found], at[found]] = False
    return positions


@instruction(
    engines=("vector",),
    taint="rows",
    limits=("data: 8 to 16384 elements a partition", "vals: 8", "dst: (P, 8) uint16 or uint32"),
    cost="N",
)
class nc_find_index8:
    """Where each of 8 values stands in its partition of data: the first position that no earlier slot took.

    A value that occurs in several slots takes successive positions in ascending order; a value that is not there
    gives all ones (0xFFFF, 0xFFFFFFFF).
    """

    def signature(dst: out(dtypes=INDEX_DTYPES), data: tile(dtypes=NUMBERS), vals: tile(dtypes=NUMBERS)): ...

    def check(site):
        check_search(site, "data")
        check_rank(site, 3, "vals")
        check_eight(site, "vals", "data")
        check_eight(site, "dst", "data")

    def run(m, site):
        put_positions(m, "dst", first_matches(m.f32("data"), m.f32("vals"), range(8)))


def put_positions(m, name, positions):
    """Write positions as unsigned integers; -1 becomes all ones."""
    m.put_raw(name, positions.astype(f"u{m.view(name).dtype.itemsize}"))


@instruction(
    engines=("vector",),
    taint="rows",
    limits=("data: 8 to 16384 elements a partition", "vals: 8", "dst_idx: (P, 8) uint16 or uint32"),
    cost="max(64, N)",
)
class nc_match_replace8:
    """dst = data with the first occurrence of each of 8 values replaced by imm; dst_idx receives the positions.

    The values are taken from the last to the first, so of equal values the last slot has the smallest position: the
    opposite order of nc_find_index8. A value that is not there gives all ones in dst_idx.
    """

    def signature(
        dst: out(dtypes=NUMBERS),
        data: tile(dtypes=NUMBERS),
        vals: tile(dtypes=NUMBERS),
        imm: PLAIN,
        dst_idx: out(dtypes=INDEX_DTYPES, optional=True) = None,
    ): ...

    def check(site):
        check_same_elements(site, "dst", "data")
        check_search(site, "data")
        check_rank(site, 3, "vals")
        check_eight(site, "vals", "data")
        if site.has("dst_idx"):
            check_eight(site, "dst_idx", "data")
        if not isinstance(site.attr("imm"), int | float):
            raise site.refuse("operand_type", f"imm={site.attr('imm')!r}", "a number known while building")

    def run(m, site):
        positions = first_matches(m.f32("data"), m.f32("vals"), range(7, -1, -1))
        exact = site.dtype("dst") == site.dtype("data")
        result = m.raw("data").copy() if exact else m.f32("data").copy()
        rows, slots = np.nonzero(positions >= 0)
        imm = np.asarray(site.attr("imm"), np.float32)
        result[rows, positions[rows, slots]] = m.cast(imm, site.dtype("dst")) if exact else imm
        (m.put_raw if exact else m.put)("dst", result)
        if site.has("dst_idx"):
            put_positions(m, "dst_idx", positions)
