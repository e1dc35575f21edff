"""Rotate adjacent channel pairs of queries or keys: tokens on partitions, the angles shared by all heads."""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
CHUNK = 2048  # elements of a partition that are rotated together: long DMA rows, tiles that fit SBUF several times
CHUNKS = 8  # of a block, which shares one load of cos and one of sin
# Of so many chunks GpSimdE takes so many: it needs two cycles an element where VectorE needs one, and VectorE's clock
# is 0.96 GHz on trn2 and 1.2 GHz on trn3.
GPSIMD_SHARE = {nisa.nc_version.gen3: (4, 11), nisa.nc_version.gen4: (6, 19)}


@nki.jit
def rope_3d(x, cos, sin):
    """y[s, h, 2j] = a*cos[s, j] - b*sin[s, j], y[s, h, 2j+1] = a*sin[s, j] + b*cos[s, j], (a, b) the pair j of x[s, h].

    Dimensions:  S tokens (any), H heads (any), D head size (even); H*D up to 4096
    Args:        x [S, H, D] bfloat16 or float32; cos, sin [S, D/2] float32; all in HBM
    Returns:     [S, H, D] in HBM, dtype of x
    Accuracy:    products and their sum in float32, one rounding at the end
    Cores:       with LNC 2 the blocks alternate between the cores

    Tiling:
        for each block of 128*K tokens, K consecutive ones a partition:    # one DMA each for cos and sin
            for each chunk of G of the K tokens:                           # G*H*D contiguous elements a DMA row
                t1 = even*cos; t2 = odd*sin; y_even = t1 - t2              # [128, G, H, D/2], cos broadcast over H
                t3 = even*sin; t4 = odd*cos; y_odd = t3 + t4               # VectorE, a third of the chunks on GpSimdE
    """
    tokens, heads, size = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    chunk = max(1, CHUNK // (heads * size))
    core, cores = nl.program_id(0), nl.num_programs(0)
    share, of = GPSIMD_SHARE[nisa.get_nc_version()]
    turn = 0
    for number, (start, partitions, rows) in enumerate(_blocks(tokens, chunk * CHUNKS)):
        if number % cores != core:
            continue
        stop = start + partitions * rows
        c, s = (_load(t[start:stop], (partitions, rows, size // 2)) for t in (cos, sin))
        for at in range(0, rows, chunk):
            count = min(chunk, rows - at)
            shape = (partitions, rows, heads, size)
            source, target = (t[start:stop].reshape(shape)[:, at : at + count] for t in (x, y))
            engine = nisa.engine.gpsimd if turn * share % of < share else nisa.engine.vector
            _rotate(target, source, c[:, at : at + count], s[:, at : at + count], engine)
            turn += 1
    return y


def _blocks(tokens, rows):
    """(first token, partitions, consecutive tokens a partition): whole blocks, then what is left in at most two."""
    start, found = 0, []
    while tokens - start >= PARTITIONS:
        taken = min(rows, (tokens - start) // PARTITIONS)
        found.append((start, PARTITIONS, taken))
        start += PARTITIONS * taken
    if start < tokens:
        found.append((start, tokens - start, 1))
    return found


def _load(source, shape):
    tile = nl.ndarray(shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source.reshape(shape))
    return tile


def _rotate(target, source, cos, sin, engine):
    """One chunk from HBM to HBM; source, target [P, G, H, D], cos, sin [P, G, D/2] in SBUF."""
    partitions, count, heads, size = source.shape
    pairs = (partitions, count, heads, size // 2, 2)
    x = nl.ndarray(pairs, dtype=source.dtype, buffer=nl.sbuf)
    y = nl.ndarray(pairs, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=source)
    even, odd = x[:, :, :, :, 0], x[:, :, :, :, 1]
    c, s = (t.expand_dim(2).broadcast(2, heads) for t in (cos, sin))
    products = [nl.ndarray(even.shape, dtype=nl.float32, buffer=nl.sbuf) for _ in range(4)]
    for product, part, angle in zip(products, (even, odd, even, odd), (c, s, s, c), strict=True):
        nisa.tensor_tensor(dst=product, data1=part, data2=angle, op=nl.multiply, engine=engine)
    nisa.tensor_tensor(dst=y[:, :, :, :, 0], data1=products[0], data2=products[1], op=nl.subtract, engine=engine)
    nisa.tensor_tensor(dst=y[:, :, :, :, 1], data1=products[2], data2=products[3], op=nl.add, engine=engine)
    nisa.dma_copy(dst=target, src=y)
