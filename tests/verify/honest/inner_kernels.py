# op: scale_add
# what: kernels that call kernels, no_reorder, a class with operators
import nki
import nki.isa as nisa
import nki.language as nl


class Wide:
    """A float32 tile with arithmetic."""

    __slots__ = ("tile",)

    def __init__(self, tile):
        self.tile = tile

    def _with(self, op, other):
        out = nl.ndarray(self.tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        if isinstance(other, Wide):
            nisa.tensor_tensor(dst=out, data1=self.tile, data2=other.tile, op=op)
        else:
            nisa.tensor_scalar(dst=out, data=self.tile, op0=op, operand0=other)
        return Wide(out)

    def __add__(self, other):
        return self._with(nl.add, other)

    def __rmul__(self, other):
        return self._with(nl.multiply, other)


@nki.jit
def fetch(source, start, rows):
    tile = nl.ndarray((rows, source.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[start : start + rows])
    return Wide(tile)


@nki.jit
def scale_add(x, y):
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    start = 0
    while start < x.shape[0]:
        rows = min(x.shape[0] - start, 64)
        with nl.no_reorder():
            result = 2.0 * fetch(x, start, rows) + fetch(y, start, rows)
        narrow = nl.ndarray(result.tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=narrow, src=result.tile)
        nisa.dma_copy(dst=z[start : start + rows], src=narrow)
        start += rows
        del result, narrow
    return z
