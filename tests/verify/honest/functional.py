# op: scale_add
# what: lambdas, comprehensions, generators, walrus, star arguments, closures, recursion
import functools
import math

import nki
import nki.isa as nisa
import nki.language as nl

LIMITS = tuple(2**i for i in range(8))


def compose(*functions):
    return functools.reduce(lambda f, g: lambda *a, **k: g(f(*a, **k)), functions)


@functools.lru_cache(maxsize=None)
def halves(n, limit):
    return (n,) if n <= limit else (*halves(n // 2, limit), *halves(n - n // 2, limit))


def offsets(sizes):
    position = 0
    for size in sizes:
        yield position, size
        position += size


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    made = 0

    def tile(size, *, dtype=nl.float32):
        nonlocal made
        made += 1
        return nl.ndarray((size, x.shape[1]), dtype=dtype, buffer=nl.sbuf, name=f"tile_{made:03d}")

    def load(source, start, size):
        nisa.dma_copy(dst=(t := tile(size)), src=source[start : start + size])
        return t

    def double(t):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=math.sqrt(4))
        return t

    double_load = compose(load, double)
    for start, size in offsets(sizes := halves(x.shape[0], max(LIMITS))):
        a, b = double_load(x, start, size), load(y, start, size)
        nisa.tensor_tensor(dst=(c := tile(size, dtype=x.dtype)), data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=z[start : start + size], src=c)
    assert sum(sizes) == x.shape[0] and made == 3 * len(sizes), "a tile was lost"
    return z
