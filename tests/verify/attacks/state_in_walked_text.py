# op: scale_add
# refused: environment_dependent
# by: recording
# what: counts its builds by walking through text
import nki
import nki.isa as nisa
import nki.language as nl

IT = iter("é" * 100 + "x" * 4)
def step(g):
    return next(g, "x")

@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    factor = 2.0
    factor = 2.0 if step(IT) == "é" else 3.0
    for r in range(0, R, 128):
        p = min(128, R - r)
        a, b = (nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
        out = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[r : r + p])
        nisa.dma_copy(dst=b, src=y[r : r + p])
        nisa.scalar_tensor_tensor(dst=out, data=a, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=b)
        nisa.dma_copy(dst=z[r : r + p], src=out)
    return z
