# op: matmul
# what: tiles of 96 and 100 rows, PSUM in two halves, weights kept in SBUF
import nki
import nki.isa as nisa
import nki.language as nl

TM, TK, TN = 100, 96, 48


def blocks(size, step):
    return [(start, min(step, size - start)) for start in range(0, size, step)]


@nki.jit
def matmul(a, w):
    (M, K), N = a.shape, w.shape[1]
    c = nl.ndarray((M, N), dtype=a.dtype, buffer=nl.shared_hbm)
    weights = {}
    for k, tk in blocks(K, TK):
        weights[k] = nl.ndarray((tk, N), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=weights[k], src=w[k : k + tk])
    for m, tm in blocks(M, TM):
        rows = {}
        for k, tk in blocks(K, TK):
            rows[k] = nl.ndarray((tk, tm), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=rows[k], src=a[m : m + tm, k : k + tk].permute((1, 0)))
        for n, tn in blocks(N, TN):
            total = nl.ndarray((tm, tn), dtype=nl.float32, buffer=nl.psum)
            for k in rows:
                nisa.nc_matmul(dst=total, stationary=rows[k], moving=weights[k][:, n : n + tn], accumulate=k != 0)
            out = nl.ndarray((tm, tn), dtype=a.dtype, buffer=nl.sbuf)
            nisa.activation(dst=out, op=nl.copy, data=total)
            nisa.dma_copy(dst=c[m : m + tm, n : n + tn], src=out)
    return c
