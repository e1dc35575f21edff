"""Write a block of keys and values into one slot of the ring cache; keys are transposed on chip."""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
RUN_BYTES = 16  # a partition takes so many bytes of consecutive tokens: columns of a transposed tile stay that close


@nki.jit
def kv_cache_update(k_ring, v_ring, k, v, slot):
    """k_ring[slot, h, d, t] = k[t, h, d]; v_ring[slot, h, t, d] = v[t, h, d]; nothing else is written.

    Dimensions:  N slots, H heads, T tokens of the block (all any), D head size (at most 128)
    Args:        k_ring [N, H, D, T], v_ring [N, H, T, D], written in place; k, v [T, H, D]; slot [1] int32, known only
                 at run time, 0 <= slot < N; all in HBM, all tensors but slot of one dtype, bfloat16 or float32
    Accuracy:    bit exact
    Cores:       with LNC 2 the cores take alternate groups of tokens

    Tiling:
        for each group of 128*R tokens, R consecutive ones a partition (R = 8 in bfloat16, 4 in float32):
            load v [128, R, H*D]; reorder to [128, H, R, D] on chip; store rows of R*D elements
            load k [128, R, H*D]; for each head: R transposes on TensorE into PSUM [D, R, 128];
                copy to SBUF in token order [D, 128, R]; store rows of 128*R tokens
    """
    place = nisa.scalar_load(slot.reshape((1, 1)))
    core, cores = nl.program_id(0), nl.num_programs(0)
    most = RUN_BYTES // (4 if k.dtype == nl.float32 else 2)
    for number, (start, partitions, run) in enumerate(_groups(k.shape[0], most)):
        if number % cores != core:
            continue
        _values(v_ring, v, place, start, partitions, run)
        _keys(k_ring, k, place, start, partitions, run, number)


def _groups(tokens, most):
    """(first token, partitions, consecutive tokens a partition); the last few stand alone."""
    start, found = 0, []
    while start < tokens:
        left = tokens - start
        partitions, run = (min(PARTITIONS, left // most), most) if left >= most else (left, 1)
        found.append((start, partitions, run))
        start += partitions * run
    return found


def _loaded(source, start, partitions, run):
    """[P, run, H, D] in SBUF: `run` consecutive tokens a partition, contiguous in HBM."""
    _, heads, size = source.shape
    tile = nl.ndarray((partitions, run, heads, size), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[start : start + partitions * run].reshape(tile.shape))
    return tile


def _values(ring, v, place, start, partitions, run):
    _, heads, tokens, size = ring.shape
    loaded = _loaded(v, start, partitions, run)
    by_head = nl.ndarray((partitions, heads, run, size), dtype=v.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=by_head, src=loaded.permute((0, 2, 1, 3)), engine=nisa.engine.vector)
    pattern = [[run * size, partitions], [tokens * size, heads], [1, run * size]]
    target = ring.ap(pattern=pattern, offset=start * size, scalar_offset=place, indirect_dim=0)
    nisa.dma_copy(dst=target, src=by_head.reshape((partitions, heads, run * size)))


def _keys(ring, k, place, start, partitions, run, number):
    _, heads, size, tokens = ring.shape
    loaded = _loaded(k, start, partitions, run)
    for head in range(heads):
        columns = nl.ndarray((size, run, partitions), dtype=k.dtype, buffer=nl.psum)
        for step in range(run):
            nisa.nc_transpose(dst=columns[:, step], data=loaded[:, step, head], engine=nisa.engine.tensor)
        in_order = nl.ndarray((size, partitions, run), dtype=k.dtype, buffer=nl.sbuf)
        engine = nisa.engine.scalar if (number + head) % 2 else nisa.engine.vector
        nisa.tensor_copy(dst=in_order.permute((0, 2, 1)), src=columns, engine=engine)
        pattern = [[tokens, size], [1, partitions * run]]
        target = ring.ap(pattern=pattern, offset=head * size * tokens + start, scalar_offset=place, indirect_dim=0)
        nisa.dma_copy(dst=target, src=in_order.reshape((size, partitions * run)))
