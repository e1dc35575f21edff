# op: scale_add
# refused: unbound_scalar
# what: a loop bound computed from data, which no schedule can know
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    nothing = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    # Zero, but only for whoever knows that no input is that large.
    some = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=some, src=x[0:1, 0:1])
    nisa.tensor_scalar(dst=nothing, data=some, op0=nl.greater, operand0=3.0e38)
    rows = nisa.scalar_load(nothing) + R

    def body(r):
        a = nl.ndarray((1, C), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((1, C), dtype=nl.float32, buffer=nl.sbuf)
        c = nl.ndarray((1, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[nl.ds(r, 1), :])
        nisa.dma_copy(dst=b, src=y[nl.ds(r, 1), :])
        nisa.scalar_tensor_tensor(dst=c, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=b)
        nisa.dma_copy(dst=z[nl.ds(r, 1), :], src=c)

    nl.fori_loop(0, rows, body)
    return z
