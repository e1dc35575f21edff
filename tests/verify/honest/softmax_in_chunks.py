# op: row_softmax
# what: online softmax: running maximum and sum over chunks of columns
import nki
import nki.isa as nisa
import nki.language as nl

STEP = 48


def column(p):
    return nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)


@nki.jit
def row_softmax(x):
    R, C = x.shape
    y = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        x_t = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_t, src=x[r : r + p])
        top, total = column(p), column(p)
        for i, c in enumerate(range(0, C, STEP)):
            chunk = x_t[:, c : min(c + STEP, C)]
            here, minus, part = column(p), column(p), column(p)
            waste = nl.ndarray(chunk.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=here, op=nl.maximum, data=chunk, axis=1)
            if i:
                nisa.tensor_tensor(dst=here, data1=here, data2=top, op=nl.maximum)
            nisa.tensor_scalar(dst=minus, data=here, op0=nl.multiply, operand0=-1.0)
            nisa.activation_reduce(dst=waste, op=nl.exp, data=chunk, bias=minus, reduce_op=nl.add, reduce_res=part)
            if i:
                old = column(p)
                nisa.activation(dst=old, op=nl.exp, data=top, bias=minus)
                nisa.scalar_tensor_tensor(dst=total, data=total, op0=nl.multiply, operand0=old, op1=nl.add, operand1=part)
            else:
                nisa.tensor_copy(dst=total, src=part)
            nisa.tensor_copy(dst=top, src=here)
        inverse, minus = column(p), column(p)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=minus, data=top, op0=nl.multiply, operand0=-1.0)
        nisa.activation(dst=x_t, op=nl.exp, data=x_t, bias=minus)
        y_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y_t, data=x_t, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=y[r : r + p], src=y_t)
    return y
