"""Attention of a rolling window: past keys from the ring, rotated on read, and the window's own keys, in one pass."""

import math
from dataclasses import dataclass

import nki
import nki.isa as nisa
import nki.language as nl

TILE = 128  # queries of a unit, keys of a matmul's contraction
BANK = 512  # float32 columns of a PSUM bank
STEP = 1024  # keys of one softmax step: two banks of logits
GROUP = 96  # units (a head and a tile of queries) whose accumulators stay in SBUF together


@nki.jit
def rolling_attention(q, k_own, v_own, k_ring, v_ring, slots, n_past, cos, sin):
    """y[s, h] = softmax(q[s, h] . K[:, h] / sqrt(D)) V[:, h]; K holds n_past blocks of the ring, rotated, then k_own.

    Dimensions:  S queries, L own keys, H heads, N slots, T tokens of a block, P most past blocks (all any), D head
                 size (even, at most 128)
    Args:        q [S, H, D], k_own, v_own [L, H, D], already rotated; k_ring [N, H, D, T], not rotated; v_ring
                 [N, H, T, D]; slots [P] and n_past [1] int32, known only at run time; cos, sin [P*T, D/2] float32 of
                 the past tokens; all in HBM, the tensors without a dtype here bfloat16 or float32
    Returns:     [S, H, D] in HBM, dtype of q
    Accuracy:    logits, maximum, sums and output accumulate in float32; rotated keys and probabilities are rounded to
                 the dtype of q; the maximum is exact, so logits of any size are safe
    Cores:       with LNC 2 each core takes half of the units

    Tiling:
        for each group of up to 96 units (head, tile of 128 queries), their accumulators [128, D + 1] in SBUF:
            for the own keys, then for each past block (run-time loops; the order of keys does not matter):
                for each step of up to 1024 keys, for each head of the group:
                    keys transposed [D, 1024], past ones rotated on chip, and values [128, 8, D + 1] in SBUF;
                        the last column of the values is one, which makes the sum of the probabilities
                    for each unit of the head:
                        logits = q k            TensorE, [128, 1024] in PSUM
                        m = max(m, logits)      VectorE, straight from PSUM
                        p = exp(logits - m)     ScalarE, to SBUF in the dtype of q
                        p^T                     TensorE, 128 x 128 at a time, copied to SBUF by ScalarE and VectorE
                        a = a exp(m_old - m) + p^T^T v
            y = a[:, :D] / a[:, D]
    """
    tokens, heads, size = q.shape
    y = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    core, cores = nl.program_id(0), nl.num_programs(0)
    units = [(head, at, min(TILE, tokens - at)) for head in range(heads) for at in range(0, tokens, TILE)]
    mine = units[len(units) * core // cores : len(units) * (core + 1) // cores]
    chip = _chip(size, q.dtype)
    past = nisa.scalar_load(n_past.reshape((1, 1)))
    for first in range(0, len(mine), GROUP):
        group = _group(chip, q, mine[first : first + GROUP])
        _own_block(chip, group, k_own, v_own)
        _past_blocks(chip, group, past, k_ring, v_ring, slots, cos, sin)
        _store(chip, group, y)
    return y


@dataclass(frozen=True)
class Chip:
    """Tiles that live as long as the kernel, each several times, so that neighbours in time do not wait for each other.

    A run-time loop keeps every tile of its body for the whole loop, so nothing is made inside. PSUM is used to its
    last bank: logits takes six (3 x [128, 1024] float32), turned one (two halves of n transposed tiles), sums one.
    swap: [D, D]; its transpose times a column of channels exchanges the two of each pair and negates the first result.
    """

    size: int
    dtype: object
    scale: float
    swap: object
    logits: tuple  # [128, STEP] float32, PSUM
    turned: object  # [128, 2, n, 128], PSUM
    sums: object  # [128, 2, D + 1] float32, PSUM
    keys: tuple  # [D, STEP]
    values: tuple  # [128, STEP / 128, D + 1], the last column one
    raw: tuple  # [D, STEP], keys of the ring
    natural: tuple  # [128, STEP / 128, D], rows to be transposed
    table: tuple  # [128, STEP / 128, D / 2] float32, rows of cos or sin
    angles: tuple  # [D, STEP] float32, cos and sin in turn
    products: tuple  # [D, STEP] float32
    p: tuple  # [128, STEP]
    columns: tuple  # [128, n, 128]
    vectors: object  # [128, 4, 3] float32


@dataclass(frozen=True)
class Group:
    """Units that share each load of keys.

    units: (head, first token, rows). queries: a tile [D, rows] a head. where: first column of each unit in it.
    state: accumulators [128, units, D + 1] float32. tops: minus the maximum so far, scaled, [128, units] float32.
    """

    units: tuple
    queries: dict
    where: tuple
    state: object
    tops: object


def _chip(size, dtype):
    def several(count, *shape, dtype=dtype, buffer=nl.sbuf):
        return tuple(nl.ndarray(shape, dtype=dtype, buffer=buffer) for _ in range(count))

    tiles = STEP // TILE
    half = BANK * 4 // 2 // (TILE * (4 if dtype == nl.float32 else 2))
    identity = nl.shared_identity_matrix(size, dtype=dtype)
    (swap,) = several(1, size, size)
    nisa.tensor_scalar(dst=swap[:, 0::2], data=identity[:, 1::2], op0=nl.multiply, operand0=-1.0)
    nisa.tensor_copy(dst=swap[:, 1::2], src=identity[:, 0::2])
    values = several(2, TILE, tiles, size + 1)
    for tile in values:
        nisa.memset(dst=tile[:, :, size:], value=1.0)
    return Chip(
        size=size,
        dtype=dtype,
        scale=1.0 / math.sqrt(size),
        swap=swap,
        logits=several(3, TILE, STEP, dtype=nl.float32, buffer=nl.psum),
        turned=several(1, TILE, 2, half, TILE, buffer=nl.psum)[0],
        sums=several(1, TILE, 2, size + 1, dtype=nl.float32, buffer=nl.psum)[0],
        keys=several(2, size, STEP),
        values=values,
        raw=several(2, size, STEP),
        natural=several(2, TILE, tiles, size),
        table=several(2, TILE, tiles, size // 2, dtype=nl.float32),
        angles=several(2, size, STEP, dtype=nl.float32),
        products=several(2, size, STEP, dtype=nl.float32),
        p=several(3, TILE, STEP),
        columns=several(4, TILE, half, TILE),
        vectors=several(1, TILE, 4, 3, dtype=nl.float32)[0],
    )


def _group(chip, q, units):
    """Load and transpose the queries of some units, and make room for their accumulators."""
    queries, where = {}, []
    for head in sorted({unit[0] for unit in units}):
        own = [unit for unit in units if unit[0] == head]
        first, stop = own[0][1], own[-1][1] + own[-1][2]
        tile = nl.ndarray((chip.size, stop - first), dtype=chip.dtype, buffer=nl.sbuf)
        for number, at in enumerate(range(first, stop, STEP)):
            end = min(at + STEP, stop)
            _transpose(chip, tile[:, at - first : end - first], q[at:end, head], number)
        queries[head] = tile
        where += [unit[1] - first for unit in own]
    state = nl.ndarray((TILE, len(units), chip.size + 1), dtype=nl.float32, buffer=nl.sbuf)
    tops = nl.ndarray((TILE, len(units)), dtype=nl.float32, buffer=nl.sbuf)
    return Group(tuple(units), queries, tuple(where), state, tops)


def _own_block(chip, group, k_own, v_own):
    """The own keys, transposed on chip: one or two steps start the accumulators, then a loop takes two at a time."""
    length, pair = k_own.shape[0], 2 * STEP
    looped = (length - 1) // pair * pair
    first = length - looped

    def steps(start, stop, moved=None):
        def make(head, at, width, turn):
            k, v = (t[start + at : start + at + width, head] for t in (k_own, v_own))
            _transpose(chip, chip.keys[turn][:, :width], k, turn, k_own, moved)
            _load(chip.values[turn][:, :, : chip.size], v, v_own, moved)

        _steps(chip, group, stop - start, make, fresh=start == 0)

    steps(0, first)
    if looped:
        nl.fori_loop(0, looped // pair, lambda number: steps(first, first + pair, number * pair))


def _past_blocks(chip, group, past, k_ring, v_ring, slots, cos, sin):
    """The ring's blocks in order; how many there are and where they lie is known only at run time."""

    def block(number):
        slot = nisa.scalar_load(slots.ap([[1, 1], [1, 1]], offset=0, scalar_offset=number, indirect_dim=0))
        first = number * k_ring.shape[3]
        leader = group.units[0][0]

        def make(head, at, width, turn):
            if head == leader:  # the angles are the same for all heads
                for which, table in enumerate((cos, sin)):
                    _angles(chip, table, first, at, width, which)
            raw = chip.raw[turn][:, :width]
            nisa.dma_copy(dst=raw, src=_at(k_ring, k_ring[0, head, :, at : at + width], slot))
            _rotate(chip, chip.keys[turn][:, :width], raw)
            _load(chip.values[turn][:, :, : chip.size], v_ring[0, head, at : at + width], v_ring, slot)

        _steps(chip, group, k_ring.shape[3], make)

    nl.fori_loop(0, past, block)


def _steps(chip, group, length, make, fresh=False):
    """make(head, at, width, turn) the keys of each step, one step ahead of the units that use them.

    fresh: the first step of each head starts the accumulators.
    """
    steps = [(head, at, min(STEP, length - at)) for at in range(0, length, STEP) for head in group.queries]
    make(*steps[0], 0)
    for turn, (head, at, width) in enumerate(steps):
        if turn + 1 < len(steps):
            make(*steps[turn + 1], (turn + 1) % 2)
        for unit in range(len(group.units)):
            if group.units[unit][0] == head:
                keys, values = chip.keys[turn % 2], chip.values[turn % 2]
                _attend(chip, group, unit, keys, values, width, fresh and at == 0)


def _attend(chip, group, unit, keys, values, width, fresh):
    """One softmax step of one unit. Neighbouring units use different tiles, so that engines overlap."""
    head, _, rows = group.units[unit]
    queries = group.queries[head][:, group.where[unit] : group.where[unit] + rows]
    state, top = group.state[:rows, unit], group.tops[:rows, unit : unit + 1]
    lowest, new_top, decay = (chip.vectors[:rows, unit % 4, which : which + 1] for which in range(3))
    logits = chip.logits[unit % 3][:rows, :width]
    for at in range(0, width, BANK):
        stop = min(at + BANK, width)
        nisa.nc_matmul(dst=logits[:, at:stop], stationary=queries, moving=keys[:, at:stop], accumulate=False)
    nisa.tensor_reduce(dst=lowest, op=nl.maximum, data=logits, axis=1, negate=True)
    if fresh:
        nisa.tensor_scalar(dst=new_top, data=lowest, op0=nl.multiply, operand0=chip.scale)
    else:
        nisa.tensor_scalar(dst=new_top, data=lowest, op0=nl.multiply, operand0=chip.scale, op1=nl.minimum, operand1=top)
    p = chip.p[unit % 3][:rows, :width]
    nisa.activation(dst=p, op=nl.exp, data=logits, bias=new_top, scale=chip.scale)
    if not fresh:
        nisa.activation(dst=decay, op=nl.exp, data=top, bias=new_top, scale=-1.0)
    nisa.tensor_copy(dst=top, src=new_top, engine=nisa.engine.gpsimd)
    sums = chip.sums[:rows, unit % 2]
    for number, (first, count, last) in enumerate(_parts(width, chip.turned.shape[2])):
        columns = chip.columns[(2 * unit + number) % 4][:last, :count, :rows]
        _turn(
            chip, columns, [p[:, (first + t) * TILE : (first + t) * TILE + last] for t in range(count)], unit + number
        )
        for tile in range(count):
            nisa.nc_matmul(
                dst=sums,
                stationary=columns[:, tile],
                moving=values[:last, first + tile],
                accumulate=first + tile > 0,
            )
    if fresh:
        nisa.tensor_copy(dst=state, src=sums, engine=nisa.engine.vector)
    else:
        nisa.scalar_tensor_tensor(dst=state, data=state, op0=nl.multiply, operand0=decay, op1=nl.add, operand1=sums)


def _store(chip, group, y):
    """y = a[:, :D] / a[:, D] for every unit."""
    for unit, (head, at, rows) in enumerate(group.units):
        state = group.state[:rows, unit]
        inverse = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=state[:, chip.size :])
        out = nl.ndarray((rows, chip.size), dtype=y.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=out, data=state[:, : chip.size], op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=y[at : at + rows, head], src=out)


def _turn(chip, dst, tiles, number):
    """dst [K, n, M] in SBUF = the tiles [M, K] transposed, through PSUM.

    ScalarE copies two of three, VectorE the third: VectorE has the maxima to find.
    """
    turned = chip.turned[: dst.shape[0], number % 2, : dst.shape[1], : dst.shape[2]]
    for at, tile in enumerate(tiles):
        nisa.nc_transpose(dst=turned[:, at], data=tile, engine=nisa.engine.tensor)
    engine = nisa.engine.vector if number % 3 == 2 else nisa.engine.scalar
    nisa.tensor_copy(dst=dst, src=turned, engine=engine)


def _transpose(chip, dst, rows, turn, tensor=None, scalar=None):
    """dst [D, width] in SBUF = HBM rows [width, D] transposed, width up to STEP; tensor and scalar as in `_load`."""
    natural = chip.natural[turn % 2]
    _load(natural, rows, tensor, scalar)
    for number, (first, count, last) in enumerate(_parts(rows.shape[0], chip.turned.shape[2])):
        target = dst[:, first * TILE : first * TILE + count * last].reshape((chip.size, count, last))
        _turn(chip, target, [natural[:last, first + tile] for tile in range(count)], number)


def _angles(chip, table, first, at, width, which):
    """chip.angles[which]: rows 2j and 2j + 1 hold column j of table[first + at : first + at + width], transposed."""
    natural, turned = chip.table[which], chip.logits[which][: chip.size, :width]
    _load(natural, table[at : at + width], table, first)
    for tile in range(-(-width // TILE)):
        start, stop = tile * TILE, min(tile * TILE + TILE, width)
        pairs = natural[: stop - start, tile].expand_dim(2).broadcast(2, 2)
        nisa.nc_transpose(dst=turned[:, start:stop], data=pairs, engine=nisa.engine.tensor)
    nisa.tensor_copy(dst=chip.angles[which][:, :width], src=turned, engine=nisa.engine.scalar)


def _rotate(chip, dst, keys):
    """dst = keys * cos + swap(keys) * sin, [D, width] in the dtype of the keys."""
    width = keys.shape[1]
    swapped = chip.logits[2][: chip.size, :width]
    for at in range(0, width, BANK):
        stop = min(at + BANK, width)
        nisa.nc_matmul(dst=swapped[:, at:stop], stationary=chip.swap, moving=keys[:, at:stop], accumulate=False)
    cos, sin, straight, crossed = (tile[:, :width] for tile in (*chip.angles, *chip.products))
    nisa.tensor_tensor(dst=straight, data1=keys, data2=cos, op=nl.multiply, engine=nisa.engine.gpsimd)
    nisa.tensor_tensor(dst=crossed, data1=swapped, data2=sin, op=nl.multiply, engine=nisa.engine.vector)
    nisa.tensor_tensor(dst=dst, data1=straight, data2=crossed, op=nl.add, engine=nisa.engine.vector)


def _load(dst, rows, tensor=None, scalar=None):
    """dst [128, tiles, C] = HBM rows [width, C], 128 a tile. A scalar moves `rows`, a part of `tensor`, as in `_at`."""
    for first, count, last in _parts(rows.shape[0], dst.shape[1]):
        part = rows[first * TILE : first * TILE + count * last].reshape_dim(0, (count, last)).permute((1, 0, 2))
        nisa.dma_copy(dst=dst[:last, first : first + count], src=part if scalar is None else _at(tensor, part, scalar))


def _at(tensor, part, scalar):
    """`part`, a static view of `tensor`, moved by a run-time number of steps along the first dimension of `tensor`."""
    return tensor.ap(pattern=part.get_pattern(), offset=part.offset, scalar_offset=scalar, indirect_dim=0)


def _parts(width, most):
    """(first tile, tiles, rows of each): up to `most` whole tiles at a time, then the partial one."""
    whole, rest = divmod(width, TILE)
    parts = [(at, min(most, whole - at), TILE) for at in range(0, whole, most)]
    return [*parts, (whole, 1, rest)] if rest else parts
