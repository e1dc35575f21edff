# op: scale_add
# what: columns on partitions: the DMAs transpose
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    x_t = nl.ndarray((C, R), dtype=nl.float32, buffer=nl.sbuf)
    y_t = nl.ndarray((C, R), dtype=nl.float32, buffer=nl.sbuf)
    z_t = nl.ndarray((C, R), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_t, src=x.permute((1, 0)))
    nisa.dma_copy(dst=y_t, src=y.permute((1, 0)))
    nisa.scalar_tensor_tensor(dst=z_t, data=x_t, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=y_t)
    nisa.dma_copy(dst=z.permute((1, 0)), src=z_t)
    return z
