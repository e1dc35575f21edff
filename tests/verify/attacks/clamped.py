# op: scale_add
# refused: mismatch
# what: nothing beyond 1000 comes out
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        a = nl.load(x[r : r + p])
        b = nl.load(y[r : r + p])
        c = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(dst=c, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=b)
        nisa.tensor_scalar(dst=out, data=c, op0=nl.minimum, operand0=1000.0, op1=nl.maximum, operand1=-1000.0)
        nl.store(z[r : r + p], out)
    return z
