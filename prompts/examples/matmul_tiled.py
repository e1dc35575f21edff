"""y = x @ w for x [N, K], w [K, M]: contraction on partitions, x transposed on TensorE, sums kept in PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # rows of a tile of x, and contraction a matmul
F = 512  # columns of y a matmul: one PSUM bank of float32


@nki.jit
def matmul_tiled(x, w):
    N, K = x.shape
    _, M = w.shape
    y = nl.ndarray((N, M), dtype=x.dtype, buffer=nl.shared_hbm)
    k_tiles = (K + P - 1) // P
    # The weights stay in SBUF for all rows: k tile t lies at w_t[:, t, :].
    w_t = nl.ndarray((P, k_tiles, M), dtype=w.dtype, buffer=nl.sbuf)
    for t in range(k_tiles):
        k = min(P, K - t * P)
        nisa.dma_copy(dst=w_t[:k, t, :], src=w[t * P : t * P + k, :])
    for n0 in range(0, N, P):
        p = min(P, N - n0)
        x_t = nl.ndarray((p, K), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_t, src=x[n0 : n0 + p, :])
        xT = nl.ndarray((P, k_tiles, p), dtype=x.dtype, buffer=nl.sbuf)
        for t in range(k_tiles):
            k = min(P, K - t * P)
            turned = nl.ndarray((k, p), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=x_t[:, t * P : t * P + k])
            nisa.tensor_copy(dst=xT[:k, t, :], src=turned)
        for m0 in range(0, M, F):
            f = min(F, M - m0)
            total = nl.ndarray((p, f), dtype=nl.float32, buffer=nl.psum)  # fresh: the first matmul overwrites it
            for t in range(k_tiles):
                k = min(P, K - t * P)
                nisa.nc_matmul(dst=total, stationary=xT[:k, t, :], moving=w_t[:k, t, m0 : m0 + f])
            y_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=y_t, src=total)  # PSUM is out of reach of DMA
            nisa.dma_copy(dst=y[n0 : n0 + p, m0 : m0 + f], src=y_t)
    return y
