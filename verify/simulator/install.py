"""Make `import nki` resolve to this simulator: the modules, and the names that the chosen SDK has."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from nkismith.verify.simulator import collectives, config, enums
from nkismith.verify.simulator import sdk as releases
from nkismith.verify.simulator.dtypes import DTYPES, DType
from nkismith.verify.simulator.errors import NkiValidationError, UnsupportedInstruction
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.instructions import TABLE
from nkismith.verify.simulator.kernel import Kernel, jit
from nkismith.verify.simulator.language import surface
from nkismith.verify.simulator.language.objects import NKIObject
from nkismith.verify.simulator.recorder import NkiInstruction, active
from nkismith.verify.simulator.scalar_calls import (
    register_alloc,
    register_load,
    register_move,
    register_store,
    scalar_load,
    scalar_store,
)
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister
from nkismith.verify.simulator.simulate import NkiWarning, simulate, simulate_kernel
from nkismith.verify.simulator.tensor import NkiTensor, refuse

# Libraries of the first releases import annotations from neuronxcc.nki.typing; nothing else of it is offered.
_STAND_IN_NEURONXCC = importlib.util.find_spec("neuronxcc") is None


class Setting(NamedTuple):
    """The SDK whose API is offered, the target, and the cores of a launch."""

    sdk: str
    target: str
    lnc: int


# Targets that NKI still names and no longer supports (nki.jit, nki_faq): old kernel files set them at import.
_UNSUPPORTED_TARGETS = ("trn1", "trn1n", "inf2", "gen2")
_asked: tuple[str, str | None, int | None] = (releases.NEWEST, None, None)  # the arguments of `install`
_displaced: dict[str, ModuleType] = {}


def setting() -> Setting:
    """What holds now. What `install` left open is looked up at every launch: kernel files set it at import."""
    return choose(*_asked)


def choose(sdk: str, name: str | None, lnc: int | None) -> Setting:
    """Arguments, else NEURON_PLATFORM_TARGET_OVERRIDE and NEURON_LOGICAL_NC_CONFIG, else trn2 and 1."""
    chosen = name or os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or "trn2"
    if name is None and chosen in _UNSUPPORTED_TARGETS:
        text = f"NEURON_PLATFORM_TARGET_OVERRIDE={chosen}: NKI supports trn2 and trn3; judged as trn2"
        warnings.warn(text, NkiWarning, stacklevel=2)
        chosen = "trn2"
    cores = lnc or int(os.environ.get("NEURON_LOGICAL_NC_CONFIG") or 1)
    if cores not in (1, 2):
        raise ValueError(f"lnc={cores}: a logical core groups 1 or 2 cores")
    return Setting(releases.check_sdk(sdk), target(chosen).name, cores)


def install(sdk: str = releases.NEWEST, target: str | None = None, lnc: int | None = None) -> None:
    """Put `nki` and its submodules into sys.modules.

    Raises ValueError for an unknown target, SDK or LNC degree.
    """
    global _asked
    choose(sdk, target, lnc)
    _asked = (sdk, target, lnc)
    found = modules(sdk)
    for name in [n for n in sys.modules if n.split(".")[0] == "nki" or n in found]:
        if not isinstance(sys.modules[name], _Module):
            _displaced[name] = sys.modules[name]
        del sys.modules[name]
    sys.modules.update(found)


def uninstall() -> None:
    """Remove what `install` put into sys.modules, and put back what it found there."""
    for name in [n for n, m in sys.modules.items() if isinstance(m, _Module)]:
        del sys.modules[name]
    sys.modules.update(_displaced)
    _displaced.clear()


class _Module(ModuleType):
    """A module of the simulated nki; a name it lacks says so and what there is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        raise UnsupportedInstruction(full, why=str(releases.absent(full, _asked[0]) or self._near(name)))

    def _near(self, name: str) -> str:
        near = difflib.get_close_matches(name, [n for n in vars(self) if not n.startswith("_")])
        return f"did you mean {' or '.join(near)}?" if near else ""


def modules(sdk: str = releases.NEWEST) -> dict[str, ModuleType]:
    """The simulated package, module by module, as `sdk` has it."""
    constants = {e.__name__: e for e in enums.ENUMS if e is not enums.MemoryRegion}
    contents: dict[str, dict[str, Any]] = {
        "nki": {"jit": jit, "simulate": simulate, "NKIObject": NKIObject, "Kernel": Kernel},
        "nki.isa": isa_names(),
        "nki.isa.constants": constants,
        "nki.language": surface.names(),
        "nki.typing": {"tensor": _Annotation(), "mutable_tensor": _Annotation(), "NkiTensor": NkiTensor},
        "nki.dtype": dict(DTYPES),
        "nki.compiler": {
            "CompileConfig": config.CompileConfig,
            "SpecializationConfig": config.SpecializationConfig,
            "AddressRotation": config.AddressRotation,
        },
        "nki.collectives": collectives.names(),
        "nki.simulator": {"simulate_kernel": simulate_kernel},
    }
    if _STAND_IN_NEURONXCC:
        contents |= {"neuronxcc": {}, "neuronxcc.nki": {}, "neuronxcc.nki.typing": contents["nki.typing"]}
    found: dict[str, ModuleType] = {}
    for name, names in contents.items():
        if releases.absent(name, sdk):
            continue
        module = found[name] = _Module(name, f"Simulated {name} of SDK {sdk}.")
        module.__path__ = []  # type: ignore[attr-defined]  # a package: submodules may be imported
        for key, value in names.items():
            if releases.absent(f"{name}.{key}", sdk) is None:
                setattr(module, key, _without_later(f"{name}.{key}", value, sdk))
    for name in found:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(found[parent], child, found[name])
    found["nki"].__version__ = releases.RELEASES[sdk]  # type: ignore[attr-defined]
    return found


def _without_later(name: str, value: Any, sdk: str) -> Any:
    """A function that refuses the parameters which came after `sdk`."""
    later = releases.later_parameters(name, sdk)
    if not later:
        return value
    signature = inspect.signature(value)

    @functools.wraps(value)
    def call(*args: Any, **kwargs: Any) -> Any:
        for parameter in later.keys() & signature.bind_partial(*args, **kwargs).arguments.keys():
            raise refuse(
                "later_parameter", f"{name} has no parameter {parameter} in SDK {sdk}",
                f"it came with {later[parameter]}; leave it out",
            )  # fmt: skip
        return value(*args, **kwargs)

    return call


class _Annotation:
    """nki.typing.tensor[...]: an annotation without effect."""

    def __getitem__(self, _: Any) -> type[NkiTensor]:
        return NkiTensor


def isa_names() -> dict[str, Any]:
    """Everything `nki.isa` offers."""
    found: dict[str, Any] = {n: d.call for n, d in TABLE.items() if d.public}
    found.update({f"{e.name}_engine": e for e in enums.engine})
    found.update({e.__name__: e for e in enums.ENUMS if e is not enums.MemoryRegion})  # dma_engine is an enum
    calls: list[Callable[..., Any] | type] = [
        scalar_load, scalar_store, register_alloc, register_load, register_move, register_store, NkiScalar,
        VirtualRegister, NkiInstruction, NkiValidationError, get_nc_version, get_nc_sub_version,
    ]  # fmt: skip
    found.update({c.__name__: c for c in calls})
    found["DType"] = DType
    return found


def get_nc_version() -> enums.nc_version:
    """The NeuronCore generation the kernel is built for."""
    recorder = active()
    return enums.nc_version(recorder.target.generation if recorder else target(setting().target).generation)


def get_nc_sub_version() -> int:
    """The silicon revision within the generation: the first."""
    return 0
