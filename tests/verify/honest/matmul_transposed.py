# op: matmul
# what: computes the transposed product and lets the last DMA turn it
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matmul(a, w):
    (M, K), (_, N) = a.shape, w.shape
    c = nl.ndarray((M, N), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((N, M), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, K, 128):
        size = min(128, K - k)
        w_t = nl.ndarray((size, N), dtype=a.dtype, buffer=nl.sbuf)
        a_t = nl.ndarray((size, M), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=w_t, src=w[k : k + size])
        nisa.dma_copy(dst=a_t, src=a[:, k : k + size].permute((1, 0)))
        nisa.nc_matmul(dst=total, stationary=w_t, moving=a_t)
    out = nl.ndarray((N, M), dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=total)
    nisa.dma_copy(dst=c.permute((1, 0)), src=out)
    return c
