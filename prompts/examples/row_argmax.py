"""value[n], index[n] = max and argmax of x[n, :]: the eight largest of a row, then where they are."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
LEAST = 8  # max8 needs at least eight columns


@nki.jit
def row_argmax(x):
    N, C = x.shape
    value = nl.ndarray((N, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((N, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    for n0 in range(0, N, P):
        p = min(P, N - n0)
        x_t = nl.ndarray((p, max(C, LEAST)), dtype=nl.float32, buffer=nl.sbuf)
        if C < LEAST:
            nisa.memset(dst=x_t, value=-3.0e38)  # columns that no row can win with
        nisa.dma_copy(dst=x_t[:, :C], src=x[n0 : n0 + p, :])  # casts
        top = nl.ndarray((p, 8), dtype=nl.float32, buffer=nl.sbuf)
        at = nl.ndarray((p, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.max8(dst=top, src=x_t)  # descending
        nisa.nc_find_index8(dst=at, data=x_t, vals=top)
        value_t = nl.ndarray((p, 1), dtype=x.dtype, buffer=nl.sbuf)
        index_t = nl.ndarray((p, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=value_t, src=top[:, 0:1])
        nisa.tensor_copy(dst=index_t, src=at[:, 0:1])
        nisa.dma_copy(dst=value[n0 : n0 + p, :], src=value_t)
        nisa.dma_copy(dst=index[n0 : n0 + p, :], src=index_t)
    return value, index
