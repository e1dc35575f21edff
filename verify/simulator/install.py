"""Make `import nki` resolve to this simulator."""

from __future__ import annotations

import os
import sys
import typing
from types import ModuleType
from typing import Any

from nkismith.verify.simulator import enums
from nkismith.verify.simulator.dtypes import DTYPES, DType
from nkismith.verify.simulator.errors import NkiValidationError, UnsupportedInstruction
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.instructions import TABLE
from nkismith.verify.simulator.kernel import jit
from nkismith.verify.simulator.language import create, flow, maths, move
from nkismith.verify.simulator.language.constants import TILE_SIZE
from nkismith.verify.simulator.language.objects import NKIObject
from nkismith.verify.simulator.recorder import NkiInstruction, current
from nkismith.verify.simulator.scalar_calls import scalar_load, scalar_store
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister
from nkismith.verify.simulator.simulate import simulate
from nkismith.verify.simulator.tensor import NkiTensor


class Setting(typing.NamedTuple):
    """What `install` chose: the SDK whose API is offered, the target, and the cores of a launch."""

    sdk: str
    target: str
    lnc: int


_setting = Setting("2.33", "trn2", 1)


def setting() -> Setting:
    """The current SDK, target and LNC degree."""
    return _setting


def choose(sdk: str, name: str | None, lnc: int | None) -> Setting:
    """Arguments, else NEURON_PLATFORM_TARGET_OVERRIDE and NEURON_LOGICAL_NC_CONFIG, else trn2 and 1."""
    chosen = name or os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or "trn2"
    cores = lnc or int(os.environ.get("NEURON_LOGICAL_NC_CONFIG") or 1)
    if cores not in (1, 2):
        raise ValueError(f"lnc={cores}: a logical core groups 1 or 2 cores")
    return Setting(sdk, target(chosen).name, cores)


def install(sdk: str = "2.33", target: str | None = None, lnc: int | None = None) -> None:
    """Put `nki` and its submodules into sys.modules.

    Raises ValueError for an unknown target, SDK or LNC degree.
    """
    global _setting
    _setting = choose(sdk, target, lnc)
    sys.modules.update(modules())


def uninstall() -> None:
    """Remove what `install` put into sys.modules."""
    for name in [n for n, m in sys.modules.items() if n.split(".")[0] == "nki" and isinstance(m, _Module)]:
        del sys.modules[name]


class _Module(ModuleType):
    """A module of the simulated nki; a name it lacks says so and what there is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedInstruction(f"{self.__name__}.{name}")


def modules() -> dict[str, ModuleType]:
    """The simulated package, module by module."""
    isa = _module("nki.isa", isa_names())
    language = _module("nki.language", language_names())
    constants = _module(
        "nki.isa.constants", {n: getattr(enums, n) for n in ("oob_mode", "dge_mode", "matmul_perf_mode", "engine")}
    )
    kinds = _module("nki.typing", {"tensor": _Annotation()})
    dtype = _module("nki.dtype", dict(DTYPES))
    isa.constants = constants  # type: ignore[attr-defined]
    root = _module(
        "nki",
        {
            "jit": jit, "simulate": simulate, "isa": isa, "language": language, "typing": kinds, "dtype": dtype,
            "NKIObject": NKIObject, "__version__": "0.7.0",
        },
    )  # fmt: skip
    root.__path__ = []  # a package
    isa.__path__ = []
    found = (root, isa, language, constants, kinds, dtype)
    return {m.__name__: m for m in found}


class _Annotation:
    """nki.typing.tensor[...]: an annotation without effect."""

    def __getitem__(self, _: Any) -> type[NkiTensor]:
        return NkiTensor


def _module(name: str, names: dict[str, Any]) -> ModuleType:
    module = _Module(name, f"Simulated {name}.")
    module.__dict__.update(names)
    return module


def isa_names() -> dict[str, Any]:
    """Everything `nki.isa` offers."""
    found: dict[str, Any] = {n: d.call for n, d in TABLE.items() if d.public}
    found.update({e.__name__: e for e in enums.ENUMS if e is not enums.MemoryRegion})
    found.update({f"{e.name}_engine": e for e in enums.engine})
    found.update(
        scalar_load=scalar_load,
        scalar_store=scalar_store,
        NkiScalar=NkiScalar,
        VirtualRegister=VirtualRegister,
        NkiInstruction=NkiInstruction,
        NkiValidationError=NkiValidationError,
        get_nc_version=lambda: enums.nc_version(current().target.generation),
        get_nc_sub_version=lambda: 0,
    )
    return found


def language_names() -> dict[str, Any]:
    """Everything `nki.language` offers."""
    found: dict[str, Any] = {**DTYPES, "bool": DTYPES["bool_"], **maths.OPERATORS}
    for part in (create, flow, move):
        found.update({n: f for n, f in vars(part).items() if callable(f) and f.__module__ == part.__name__})
    found.update({r.name: r for r in enums.MemoryRegion})
    found.update(
        hbm=enums.MemoryRegion.private_hbm,
        MemoryRegion=enums.MemoryRegion,
        tile_size=TILE_SIZE,
        NkiTensor=NkiTensor,
        NKIObject=NKIObject,
        DType=DType,
        range=range,
        affine_range=flow.static_range,
        sequential_range=flow.static_range,
        copy=maths.OPERATORS["copy"],
        is_hbm=lambda b: b.space == "hbm",
        is_sbuf=lambda b: b.space == "sbuf",
        is_psum=lambda b: b.space == "psum",
        is_on_chip=lambda b: b.space != "hbm",
    )
    return found
