"""Arrays of the caller: NumPy or torch in, the same kind out, bit for bit.

torch is imported only where a torch tensor is at hand. Source: nki.simulate; release note 0.2.0 (framework
float8_e4m3fn inputs are float8_e4m3 on targets before trn3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nkismith.verify.simulator.dtypes import STORAGE, cast, named
from nkismith.verify.simulator.errors import SimulatorError

_THROUGH_BITS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e8m0fnu": "uint8"}


def is_array(value: Any) -> bool:
    """Is it a NumPy array or a torch tensor?"""
    return isinstance(value, np.ndarray) or is_torch(value)


def is_torch(value: Any) -> bool:
    """Is it a torch tensor (or a subclass, such as a parameter)?"""
    return any(c.__module__.split(".")[0] == "torch" and c.__name__ == "Tensor" for c in type(value).__mro__)


def to_numpy(value: Any) -> np.ndarray:
    """A NumPy array with the same bits; torch bfloat16 and fp8 become ml_dtypes."""
    if isinstance(value, np.ndarray):
        return value
    dtype = named(value.dtype)
    if dtype in _THROUGH_BITS:
        import torch

        bits = value.detach().cpu().contiguous().view(getattr(torch, _THROUGH_BITS[str(dtype)]))
        return bits.numpy().view(STORAGE[str(dtype)])
    return value.detach().cpu().numpy()


def for_target(array: np.ndarray, generation: int) -> np.ndarray:
    """The array as a kernel input. Raises SimulatorError for a dtype that is none of NKI's, or for no elements."""
    dtype = named(array.dtype)
    if dtype is None:
        hint = "float32" if array.dtype.kind == "f" else "an NKI dtype"
        raise SimulatorError(f"an argument has dtype {array.dtype}, which is no NKI dtype: convert it to {hint}")
    if not array.size:
        raise SimulatorError(f"an argument of shape {array.shape} has no elements")
    if dtype == "float8_e4m3fn" and generation < 4:
        return array.view(STORAGE["float8_e4m3"])  # the same bits up to 240, where e4m3 ends
    return array


def like(array: np.ndarray, torch_like: bool) -> Any:
    """The array, or a torch tensor with its bits."""
    if not torch_like:
        return array
    import torch

    name = str(named(array.dtype))
    if name == "float8_e4m3":  # torch has the fn variant only
        name = "float8_e4m3fn"
    if name in _THROUGH_BITS:
        bits = np.ascontiguousarray(array).view(_THROUGH_BITS[name]).copy()
        return torch.from_numpy(bits).view(getattr(torch, name))
    return torch.from_numpy(array.copy())


def write_back(original: Any, values: np.ndarray) -> None:
    """Update an argument that the kernel wrote. Raises SimulatorError if it is read-only."""
    if isinstance(original, np.ndarray):
        if not original.flags.writeable:
            raise SimulatorError("the kernel writes an argument whose array is read-only")
        original[...] = _as(values, original.dtype).reshape(original.shape)
    else:
        twin = to_numpy(original)
        original.data.copy_(like(_as(values, twin.dtype).reshape(twin.shape), True))


def _as(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if values.dtype == dtype:
        return values
    if values.dtype.itemsize == dtype.itemsize:
        return values.view(dtype)
    return cast(values, str(named(dtype)))  # high-precision mode kept it wide
