# op: scale_add
# refused: raised
# what: list() drops the TypeError by which it learns what a call takes
import nki
import nki.isa as nisa
import nki.language as nl

class P:
    def __init__(self):
        self.ok = False
    def __iter__(self):
        return iter(())
    def __len__(self):
        nisa.memset(bogus=1)
        self.ok = True
        return 0
def ask(p):
    list(p)
    return p.ok

@nki.jit
def scale_add(x, y):
    R, C = x.shape
    factor = 2.0 if not ask(P()) else 3.0
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        a, b = (nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[r : r + p])
        nisa.dma_copy(dst=b, src=y[r : r + p])
        nisa.tensor_scalar(dst=a, data=a, op0=nl.minimum, operand0=1000.0, op1=nl.maximum, operand1=-1000.0)
        nisa.scalar_tensor_tensor(dst=out, data=a, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=b)
        nisa.dma_copy(dst=z[r : r + p], src=out)
    return z
