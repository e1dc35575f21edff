"""Frame by frame, rows on partitions; the variance of what the mean was taken from."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


@nki.jit
def layer_norm_modulate(x, shift, scale):
    S, C = x.shape
    F, _ = shift.shape
    rows = S // F
    y = nl.ndarray((S, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for f in range(F):
        gain = nl.ndarray((P, C), dtype=nl.float32, buffer=nl.sbuf)
        offset = nl.ndarray((P, C), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=gain, src=scale[f : f + 1, :].broadcast(0, P))
        nisa.dma_copy(dst=offset, src=shift[f : f + 1, :].broadcast(0, P))
        nisa.tensor_scalar(dst=gain, data=gain, op0=nl.add, operand0=1.0)
        for s in range(f * rows, (f + 1) * rows, P):
            p = min(P, (f + 1) * rows - s)
            x_t = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
            total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            mean = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            centred = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
            squares = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
            var = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            root = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
            n = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
            y_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_t, src=x[s : s + p, :])
            nisa.tensor_reduce(dst=total, op=nl.add, data=x_t, axis=1)
            nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / C)
            nisa.tensor_scalar(dst=centred, data=x_t, op0=nl.subtract, operand0=mean)
            nisa.activation_reduce(dst=squares, op=nl.square, data=centred, reduce_op=nl.add, reduce_res=var)
            nisa.tensor_scalar(dst=var, data=var, op0=nl.multiply, operand0=1.0 / C, op1=nl.add, operand1=1e-6)
            nisa.activation(dst=root, op=nl.rsqrt, data=var)
            nisa.scalar_tensor_tensor(
                dst=n, data=centred, op0=nl.multiply, operand0=root, op1=nl.multiply, operand1=gain[:p, :]
            )
            nisa.tensor_tensor(dst=y_t, data1=n, data2=offset[:p, :], op=nl.add)
            nisa.dma_copy(dst=y[s : s + p, :], src=y_t)
    return y
