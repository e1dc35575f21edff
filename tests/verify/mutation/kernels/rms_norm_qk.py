"""Rows on partitions, the mean of squares from ScalarE's accumulator."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


@nki.jit
def rms_norm_qk(x, weight):
    S, C = x.shape
    y = nl.ndarray((S, C), dtype=x.dtype, buffer=nl.shared_hbm)
    w = nl.ndarray((P, C), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w, src=weight.reshape((1, C)).broadcast(0, P))
    for s in range(0, S, P):
        p = min(P, S - s)
        x_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        squares = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        mean = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        root = nl.ndarray((p, 1), dtype=nl.float32, buffer=nl.sbuf)
        scaled = nl.ndarray((p, C), dtype=nl.float32, buffer=nl.sbuf)
        y_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_t, src=x[s : s + p, :])
        nisa.activation_reduce(dst=squares, op=nl.square, data=x_t, reduce_op=nl.add, reduce_res=total)
        nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / C, op1=nl.add, operand1=1e-6)
        nisa.activation(dst=root, op=nl.rsqrt, data=mean)
        nisa.tensor_scalar(dst=scaled, data=x_t, op0=nl.multiply, operand0=root)
        nisa.tensor_tensor(dst=y_t, data1=scaled, data2=w[:p, :], op=nl.multiply)
        nisa.dma_copy(dst=y[s : s + p, :], src=y_t)
    return y
