"""y[n, :] = cumsum(x[n, :]): a scan along the free axis, in column tiles that hand the last value on."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
F = 2048


@nki.jit
def running_sum(x):
    N, C = x.shape
    y = nl.ndarray((N, C), dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.ndarray((P, min(F, C)), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    for n0 in range(0, N, P):
        p = min(P, N - n0)
        before = 0.0  # a number for the first tile, then a (p, 1) tile
        for c0 in range(0, C, F):
            f = min(F, C - c0)
            x_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_t, src=x[n0 : n0 + p, c0 : c0 + f])
            sums = nl.ndarray((p, f), dtype=nl.float32, buffer=nl.sbuf)
            # sums[i] = ones[i] * sums[i-1] + x[i]
            nisa.tensor_tensor_scan(
                dst=sums, data0=ones[:p, :f], data1=x_t, initial=before, op0=nl.multiply, op1=nl.add
            )
            before = sums[:, f - 1 : f]
            y_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=y_t, src=sums)
            nisa.dma_copy(dst=y[n0 : n0 + p, c0 : c0 + f], src=y_t)
    return y
