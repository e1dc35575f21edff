"""Options of nki.jit, the module nki.compiler. They steer the vendor's compiler; here they are checked and kept.

Source: nki.compiler (NKI 0.7). Defaults that the documentation does not print are None: the compiler's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AddressRotation(Enum):
    """Which memory locations the back end may rotate: those it allocates itself (AUTO), all, or none."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True)
class CompileConfig:
    """Options of the compilation of one kernel."""

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool | None = None
    dead_code_elim: bool | None = None
    barrier_check: bool | None = None
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.address_rotation, AddressRotation):
            raise TypeError(f"address_rotation={self.address_rotation!r}: use a member of nki.compiler.AddressRotation")


@dataclass(frozen=True)
class SpecializationConfig:
    """Options of the specialisation (recording) of one kernel."""

    allow_nested_config_override: bool | None = None
