"""y[0, c] = sum over n of x[n, c]: a reduction over partitions is a matmul with a column of ones."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
F = 512  # one PSUM bank of float32


@nki.jit
def column_sum(x):
    N, C = x.shape
    y = nl.ndarray((1, C), dtype=nl.float32, buffer=nl.shared_hbm)
    ones = nl.ndarray((P, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    for c0 in range(0, C, F):
        f = min(F, C - c0)
        total = nl.ndarray((1, f), dtype=nl.float32, buffer=nl.psum)
        for n0 in range(0, N, P):
            p = min(P, N - n0)
            x_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_t, src=x[n0 : n0 + p, c0 : c0 + f])
            nisa.nc_matmul(dst=total, stationary=ones[:p, :], moving=x_t)  # adds up over the row tiles
        y_t = nl.ndarray((1, f), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=y_t, src=total)
        nisa.dma_copy(dst=y[:, c0 : c0 + f], src=y_t)
    return y
