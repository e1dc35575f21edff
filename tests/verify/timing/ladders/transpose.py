"""[P, rows * cols] to [P, cols * rows] in every partition, after the SDK's transpose2d tutorial: fewer copies."""

import nki.isa as nisa
import nki.language as nl

from tests.verify.timing.ladders.matmul import loaded


def kept(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def by_element(x, rows, cols):
    """One copy an element."""
    tile, (turned, out) = loaded(x), kept(x)
    for r in range(rows):
        for c in range(cols):
            nisa.tensor_copy(turned[:, nl.ds(c * rows + r, 1)], tile[:, nl.ds(r * cols + c, 1)])
    nisa.dma_copy(out, turned)
    return out


def by_row(x, rows, cols):
    """One copy a row: it is read dense and written with a stride."""
    tile, (turned, out) = loaded(x), kept(x)
    there = turned.reshape((x.shape[0], cols, rows))
    for r in range(rows):
        nisa.tensor_copy(there[:, :, r], tile[:, r * cols : (r + 1) * cols])
    nisa.dma_copy(out, turned)
    return out


def at_once(x, rows, cols):
    """One copy of everything through a permuted view."""
    tile, (turned, out) = loaded(x), kept(x)
    there = turned.reshape((x.shape[0], cols, rows)).permute((0, 2, 1))
    nisa.tensor_copy(there, tile.reshape((x.shape[0], rows, cols)))
    nisa.dma_copy(out, turned)
    return out
