# op: scale_add
# refused: illegal
# what: an object that hands over another tensor each time it is asked
import nki
import nki.isa as nisa
import nki.language as nl


class Tile:
    def __init__(self, first, second):
        self.tensors = [second, first]

    @property
    def data(self):
        return self.tensors.pop() if len(self.tensors) > 1 else self.tensors[0]


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        a, b = (nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[r : r + p])
        nisa.dma_copy(dst=b, src=y[r : r + p])
        nisa.scalar_tensor_tensor(
            dst=out, data=Tile(a, b), op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=Tile(b, a)
        )
        nisa.dma_copy(dst=z[r : r + p], src=out)
    return z
