"""y = x.T for x [N, C]: natural-order DMAs, 128 x 128 transpositions on TensorE, wide stores."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
W = 2048  # rows of x gathered before a store, so that each store writes long contiguous runs


@nki.jit
def transpose_tiled(x):
    N, C = x.shape
    y = nl.ndarray((C, N), dtype=x.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, N, W):
        w = min(W, N - n0)
        for c0 in range(0, C, P):
            c = min(P, C - c0)
            y_t = nl.ndarray((c, w), dtype=x.dtype, buffer=nl.sbuf)
            for r0 in range(0, w, P):
                p = min(P, w - r0)
                x_t = nl.ndarray((p, c), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=x_t, src=x[n0 + r0 : n0 + r0 + p, c0 : c0 + c])
                turned = nl.ndarray((c, p), dtype=x.dtype, buffer=nl.psum)
                nisa.nc_transpose(dst=turned, data=x_t)
                nisa.tensor_copy(dst=y_t[:, r0 : r0 + p], src=turned)
            nisa.dma_copy(dst=y[c0 : c0 + c, n0 : n0 + w], src=y_t)
    return y
