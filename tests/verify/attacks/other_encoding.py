# -*- coding: utf-7 -*-
# op: scale_add
# refused: parse
# what: the same bytes are another program when the file is run
import nki
import nki.isa as nisa
import nki.language as nl

# +AAo-import os


@nki.jit
def scale_add(x, y):
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
