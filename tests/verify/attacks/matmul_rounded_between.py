# op: matmul
# refused: precision_downgrade,mismatch
# what: rounds the running product to bfloat16 after every tile
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matmul(a, w):
    (M, K), (_, N) = a.shape, w.shape
    c = nl.ndarray((M, N), dtype=a.dtype, buffer=nl.shared_hbm)
    for m in range(0, M, 128):
        p = min(128, M - m)
        total = nl.zeros((p, N), dtype=nl.bfloat16, buffer=nl.sbuf)
        for k in range(0, K, 8):
            n = min(8, K - k)
            a_t = nl.ndarray((n, p), dtype=a.dtype, buffer=nl.sbuf)
            w_t = nl.ndarray((n, N), dtype=a.dtype, buffer=nl.sbuf)
            part = nl.ndarray((p, N), dtype=nl.float32, buffer=nl.psum)
            nisa.dma_copy(dst=a_t, src=a[m : m + p, k : k + n].permute((1, 0)))
            nisa.dma_copy(dst=w_t, src=w[k : k + n])
            nisa.nc_matmul(dst=part, stationary=a_t, moving=w_t, accumulate=False)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        out = nl.ndarray((p, N), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
        nisa.dma_copy(dst=c[m : m + p], src=out)
    return c
