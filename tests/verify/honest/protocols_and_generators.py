# op: row_sum
# what: generator pipeline with yield from, Protocol, inheritance with super
from typing import Iterator, Protocol

import nki
import nki.isa as nisa
import nki.language as nl


class Reducer(Protocol):
    def __call__(self, tile): ...


class Base(nl.NKIObject):
    rows: int
    limit: int = 128

    def chunks(self) -> Iterator[slice]:
        yield from (slice(r, min(r + self.limit, self.rows)) for r in range(0, self.rows, self.limit))


class Small(Base):
    def chunks(self):
        for chunk in super().chunks():
            middle = (chunk.start + chunk.stop + 1) // 2
            yield slice(chunk.start, middle)
            if middle < chunk.stop:
                yield slice(middle, chunk.stop)


class Sum:
    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, tile):
        out = nl.ndarray((tile.shape[0], 1), dtype=self.dtype, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=out, op=nl.add, data=tile, axis=(1,))
        return out


@nki.jit
def row_sum(x):
    s = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    reducer: Reducer = Sum(nl.float32)
    for chunk in Small(rows=x.shape[0]).chunks():
        tile = nl.load(x[chunk])
        nl.store(s[chunk], reducer(tile))
    return s
