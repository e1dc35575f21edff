"""Tensor indirection (`NkiTensor.indirect`): where it exists, which operands may use it, where their index lies.

Source: the "Tensor indirection" part of each instruction's page (NKI 0.7). The placement rules bind the author only
where tensors are allocated by hand; otherwise the compiler places them.
"""

from __future__ import annotations

from nkismith.verify.simulator.hardware import QUADRANT
from nkismith.verify.simulator.instruction import Tile
from nkismith.verify.simulator.site import Site
from nkismith.verify.simulator.trace import Operand


def check_indirect(site: Site, name: str, kind: Tile) -> None:
    """Check one indirect operand of an instruction. Raises LegalityError."""
    if site.target.generation < 4:
        raise site.refuse("target", f"{name} uses .indirect(), which {site.target.name} does not have", "use trn3")
    if not kind.indirect:
        allowed = [n for n, k in site.definition.params.items() if isinstance(k, Tile) and k.indirect]
        fix = f"only {', '.join(allowed)} may be" if allowed else "gather into a tile first"
        raise site.refuse("indirect_operand", f"{name} is an .indirect() view", fix)
    if site.engine == "scalar" and name == "dst" and site.space(name) == "psum":
        raise site.refuse("indirect_operand", "ScalarE scatters into PSUM", "scatter into SBUF, or use VectorE")
    operand = site.operand(name)
    index = operand.dynamic.index if operand.dynamic else None
    start = None if index is None else _fixed_start(site, index)
    if start is None:
        return
    if start % QUADRANT:
        raise site.refuse(
            "indirect_placement", f"the index of {name} starts on partition {start}", f"a multiple of {QUADRANT}"
        )
    beside = operand if name != "dst" else _source(site)
    wanted = None if beside is None else _fixed_start(site, beside)
    if wanted is not None and wanted != start:
        what = name if name != "dst" else "the source"
        raise site.refuse(
            "indirect_placement",
            f"the index of {name} starts on partition {start} and {what} on {wanted}",
            "start both on one partition",
        )


def _fixed_start(site: Site, operand: Operand) -> int | None:
    """First physical partition of an operand whose buffer the author placed, else None."""
    address = site.buffers[operand.buffer].address
    return None if address is None else address[0] + operand.start


def _source(site: Site) -> Operand | None:
    """What the index of an indirect dst lies beside: the source, or the index of a source that is indirect in PSUM."""
    for name, kind in site.definition.params.items():
        if isinstance(kind, Tile) and kind.role == "in" and kind.indirect and site.has(name):
            source = site.operand(name)
            if site.space(name) == "sbuf":
                return source
            return source.dynamic.index if source.dynamic is not None else None
    return None
