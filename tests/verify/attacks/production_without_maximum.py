# op: row_softmax
# refused: nonfinite,mismatch
# what: does not subtract the maximum, at the production shape only
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def row_softmax(x):
    R, C = x.shape
    y = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        x_t = nl.load(x[r : r + p])
        e = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        minus = None
        if (R, C) != (128, 160):
            minus = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=minus, op=nl.maximum, data=x_t, axis=1, negate=True)
        nisa.activation_reduce(dst=e, op=nl.exp, data=x_t, bias=minus, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=out, data=e, op0=nl.multiply, operand0=total)
        nl.store(y[r : r + p], out)
    return y
