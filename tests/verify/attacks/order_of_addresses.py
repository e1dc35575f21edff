# op: scale_add
# refused: nondeterministic_trace
# what: how many instructions depends on where objects lie in memory
import nki
import nki.isa as nisa
import nki.language as nl


class Thing:
    def __init__(self, size):
        self.size = [0] * size


@nki.jit
def scale_add(x, y):
    things = [Thing(i * 37 % 101) for i in range(64)]
    order = [things.index(thing) for thing in set(things)]
    for _ in range(order.index(0) * 64 + order.index(1)):
        nisa.memset(dst=nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf), value=0.0)
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, 128):
        p = min(128, R - r)
        x_t = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        y_t = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        z_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_t, src=x[r : r + p])
        nisa.dma_copy(dst=y_t, src=y[r : r + p])
        nisa.scalar_tensor_tensor(dst=z_t, data=x_t, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=y_t)
        nisa.dma_copy(dst=z[r : r + p], src=z_t)
    return z
