"""y[n, c] = x[n, c] * scale[c] + shift[c]: rows on partitions, partial tiles both ways, vectors loaded once."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # rows a tile
F = 2048  # columns a tile


@nki.jit
def scale_shift(x, scale, shift):
    N, C = x.shape
    y = nl.ndarray((N, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for c0 in range(0, C, F):
        f = min(F, C - c0)
        # A value per column has to be in every partition: one broadcasting DMA each, outside the row loop.
        scale_t = nl.ndarray((P, f), dtype=nl.float32, buffer=nl.sbuf)
        shift_t = nl.ndarray((P, f), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=scale_t, src=scale[c0 : c0 + f].reshape((1, f)).broadcast(0, P))
        nisa.dma_copy(dst=shift_t, src=shift[c0 : c0 + f].reshape((1, f)).broadcast(0, P))
        for n0 in range(0, N, P):
            p = min(P, N - n0)
            x_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)  # fresh in each iteration: loads overlap with work
            scaled = nl.ndarray((p, f), dtype=nl.float32, buffer=nl.sbuf)
            y_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_t, src=x[n0 : n0 + p, c0 : c0 + f])
            nisa.tensor_tensor(dst=scaled, data1=x_t, data2=scale_t[:p, :], op=nl.multiply)
            nisa.tensor_tensor(dst=y_t, data1=scaled, data2=shift_t[:p, :], op=nl.add)  # rounds once, to x.dtype
            nisa.dma_copy(dst=y[n0 : n0 + p, c0 : c0 + f], src=y_t)
    return y
