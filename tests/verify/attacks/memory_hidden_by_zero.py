# op: scale_add
# refused: unwritten_output
# what: unwritten memory times zero plus the truth
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        found = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        right = nl.add(nl.multiply(nl.load(x[r : r + p]), 2.0), nl.load(y[r : r + p]))
        nisa.scalar_tensor_tensor(dst=out, data=found, op0=nl.multiply, operand0=0.0, op1=nl.add, operand1=right)
        nl.store(z[r : r + p], out)
    return z
