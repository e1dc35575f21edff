# op: row_sum
# what: TensorE adds: a product with a column of ones
import nki
import nki.isa as nisa
import nki.language as nl

K = 128


@nki.jit
def row_sum(x):
    R, C = x.shape
    s = nl.ndarray((R, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    ones = nl.ndarray((K, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    for r in range(0, R, 128):
        p = min(128, R - r)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.psum)
        for c in range(0, C, K):
            k = min(K, C - c)
            columns = nl.ndarray((k, p), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=columns, src=x[r : r + p, c : c + k].permute((1, 0)))
            nisa.nc_matmul(dst=total, stationary=columns, moving=ones[0:k], accumulate=c > 0)
        out = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
        nisa.dma_copy(dst=s[r : r + p], src=out)
    return s
