# op: scale_add
# what: alternates ScalarE and VectorE, with dicts of functions and match
from functools import partial

import nki
import nki.isa as nisa
import nki.language as nl


def on_scalar(dst, a, b):
    doubled = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=doubled, op=nl.copy, data=a, scale=2.0)
    nisa.tensor_tensor(dst=dst, data1=doubled, data2=b, op=nl.add)


def on_vector(dst, a, b):
    nisa.scalar_tensor_tensor(dst=dst, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=b)


def on_both(dst, a, b):
    # The doubling as an addition onto itself: exact in any dtype that holds the input.
    doubled = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=doubled, data1=a, data2=a, op=nl.add)
    nisa.tensor_tensor(dst=dst, data1=b, data2=doubled, op=nl.add)


@nki.jit
def scale_add(x, y):
    R, C = x.shape
    z = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for i, r in enumerate(range(0, R, 50)):
        match i % 3:
            case 0:
                run = on_scalar
            case 1:
                run = on_vector
            case _:
                run = on_both
        p = min(50, R - r)
        tile = partial(nl.ndarray, (p, C), buffer=nl.sbuf)
        a, b, c = tile(dtype=x.dtype), tile(dtype=x.dtype), tile(dtype=x.dtype)
        nisa.dma_copy(dst=a, src=x[r : r + p])
        nisa.dma_copy(dst=b, src=y[r : r + p])
        run(c, a, b)
        nisa.dma_copy(dst=z[r : r + p], src=c)
    return z
