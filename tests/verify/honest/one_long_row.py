# op: scale_add
# what: the matrix as one flat row a partition, when it divides
import nki
import nki.isa as nisa
import nki.language as nl


def partitions(elements):
    """The most partitions that share the elements evenly."""
    p = 128
    while elements % p:
        p -= 1
    return p


@nki.jit
def scale_add(x, y):
    p = partitions(x.size)
    n = x.size // p
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    x_t = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
    y_t = nl.ndarray((p, n), dtype=nl.float32, buffer=nl.sbuf)
    z_t = nl.ndarray((p, n), dtype=x.dtype, buffer=nl.sbuf)
    for tile, tensor in ((x_t, x), (y_t, y)):
        nisa.dma_copy(dst=tile, src=tensor.reshape((p, n)))
    nisa.scalar_tensor_tensor(dst=z_t, data=x_t, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=y_t)
    nisa.dma_copy(dst=z.reshape((p, n)), src=z_t)
    return z
