"""Everything that nki.language offers, by name."""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator import enums
from nkismith.verify.simulator.dtypes import DTYPES, DType
from nkismith.verify.simulator.language import compose, create, flow, grids, maths, move, reduce, shape
from nkismith.verify.simulator.language.constants import TILE_SIZE
from nkismith.verify.simulator.language.objects import NKIObject
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister
from nkismith.verify.simulator.tensor import NkiTensor


def names() -> dict[str, Any]:
    """Name to object."""
    found: dict[str, Any] = {**DTYPES, "bool": DTYPES["bool_"], **maths.OPERATORS}
    for part in (compose, create, flow, grids, move, reduce, shape):
        found.update({n: getattr(part, n) for n in part.__all__})
    found.update({r.name: r for r in enums.MemoryRegion})
    found.update(
        hbm=enums.MemoryRegion.private_hbm,
        MemoryRegion=enums.MemoryRegion,
        tile_size=TILE_SIZE,
        NkiTensor=NkiTensor,
        NkiScalar=NkiScalar,
        VirtualRegister=VirtualRegister,
        NKIObject=NKIObject,
        DType=DType,
        range=range,
    )
    return found
