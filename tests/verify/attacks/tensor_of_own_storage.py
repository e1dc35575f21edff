# op: scale_add
# refused: raised
# what: a tensor made of an own object, which lies wherever that says
import nki
import nki.isa as nisa
import nki.language as nl

class Place:
    def __init__(self, like, n):
        self.id, self.region, self.dtype, self.shape, self.name = n, nl.shared_hbm, like.dtype, like.shape, "t"
        self.scope, self.address, self.space, self.row = 0, None, "hbm", like.shape[0] * like.shape[1]


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    w = nl.NkiTensor((1, C), x.dtype, Place(x, 0))
    t = nl.ndarray((1, C), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=w)
    for r in range(0, R, 128):
        p = min(128, R - r)
        a, b = (nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[r : r + p])
        nisa.dma_copy(dst=b, src=y[r : r + p])
        nisa.scalar_tensor_tensor(dst=out, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=b)
        nisa.dma_copy(dst=z[r : r + p], src=out)
    return z
