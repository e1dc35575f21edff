"""y[n, :] = softmax(x[n, :]): a row reduction that fits one tile, max and sum as one value a partition."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


@nki.jit
def row_softmax(x):
    N, C = x.shape  # C up to about 8,000 here: three float32 rows of it live in each partition
    y = nl.ndarray((N, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, N, P):
        p = min(P, N - n0)
        x_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        minus_max = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        exp_t = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        inverse = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        y_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_t, src=x[n0 : n0 + p, :])
        nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=x_t, axis=1, negate=True)
        # exp(x - max) and its row sum in one pass: the bias is a value a partition, the sum comes for nothing.
        nisa.activation_reduce(
            dst=exp_t, op=nl.exp, data=x_t, bias=minus_max, scale=1.0, reduce_op=nl.add, reduce_res=total
        )
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=y_t, data=exp_t, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=y[n0 : n0 + p, :], src=y_t)
    return y
