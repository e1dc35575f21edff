"""What is right: the spec's reference in float64, and how far rounding alone may move it.

The reference runs in float64 and is rounded by nobody: in bfloat16 its own rounding would be as large as the
tolerance, and a correct kernel would pass or fail by the seed. Beside each output stands its *spread*: how much it
moves when every float input moves by one rounding unit at random. That is the error a good kernel makes
when it rounds its operands, measured on the op itself (docs/tolerance.md has the derivation).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

from nkismith.kernels.spec import Bound, OpSpec, SpecError
from nkismith.kernels.tensors import FLOATS, TensorType

Reference = Callable[..., tuple[torch.Tensor, ...]]

HEAVY = 3e8  # from this cost on runs take seconds
FINE = 8  # patterns whose spread is final
# Random patterns for the spread by cost of the case. Few for costly ones, yet not one: a single pattern can move the
# two largest logits of a row alike and find that nothing in this row moves.
PATTERNS = ((2e6, FINE), (3e7, 5), (float("inf"), 3))
SMALL = 3e7  # below this cost a run is faster on one thread


@dataclass(frozen=True)
class Expected:
    """What each result should be: in-place inputs after the call, in spec order, then outputs.

    values: float64, or int64 for integer tensors. spread: float64, same shape, root mean square over the patterns.
    unit: relative size of the moves, the unit roundoff of the coarsest float tensor of the case.
    inner: float64, same shape: how far the reference's own formula is off when it is evaluated in float32, root mean
    square over the patterns. It is what log(1 + tiny) or a difference of large intermediates costs any kernel.
    coarse: the spread is that of few patterns over very many elements: some may have moved too little by chance.
    """

    values: dict[str, np.ndarray]
    spread: dict[str, np.ndarray]
    unit: float
    inner: dict[str, np.ndarray]
    coarse: bool = False


def unit_roundoff(dtype: str) -> float:
    """Largest relative error of one rounding to nearest: 2^-8 for bfloat16, 2^-24 for float32."""
    return float(ml_dtypes.finfo(dtype).eps) / 2


def coarsest_unit(bound: Bound) -> float:
    """The unit roundoff of the coarsest float dtype among inputs and outputs; float32's if there is none."""
    dtypes = {t.dtype for t in (bound.inputs | bound.outputs).values()} & set(FLOATS)
    return max((unit_roundoff(d) for d in dtypes), default=unit_roundoff("float32"))


def expected(
    spec: OpSpec, bound: Bound, inputs: Mapping[str, np.ndarray], *, seed: int = 0, fine: bool = False
) -> Expected:
    """Run the reference on `inputs` (arrays in the case's dtypes) in float64, and again on moved inputs.

    fine: measure the spread with all patterns, whatever the case costs.
    Raises SpecError if the reference fails, modifies an argument, or returns another arity, shape or kind of number.
    """
    cost = _cost(bound)
    patterns = FINE if fine else next(count for limit, count in PATTERNS if cost < limit)
    # A float32 run is far more exact than a 16-bit unit and several times faster where that counts; its own error,
    # which `inner` measures elsewhere, is then part of what is seen to move.
    unit = coarsest_unit(bound)
    working = torch.float32 if cost >= HEAVY and unit > 1e-4 else torch.float64
    generator = torch.Generator().manual_seed(seed)
    with threads(1 if cost < SMALL else torch.get_num_threads()):
        exact = as_tensors(inputs)
        values = run(spec, bound, exact)
        squares = {name: np.zeros(v.shape) for name, v in values.items()}
        if all(_match(spec, name) != "close" for name in values):
            return Expected(values, squares, unit, squares)
        inner = {name: np.zeros(v.shape) for name, v in values.items()}
        for move, count, share in ((_by_signs, patterns - patterns // 2, 1.0), (_evenly, patterns // 2, 0.5)):
            mean = {name: np.zeros(v.shape) for name, v in values.items()}
            for _ in range(count):
                moved = {
                    n: move(t, unit, generator).to(working) if t.is_floating_point() else t for n, t in exact.items()
                }
                for name, value in (results := run(spec, bound, moved)).items():
                    mean[name] += np.square(_difference(value, values[name])) / count
                if working is torch.float64:
                    for name, value in _in_float32(spec, bound, moved).items():
                        inner[name] += np.square(_difference(value, results[name])) / patterns
            squares = {name: np.maximum(squares[name], share * mean[name]) for name in squares}
    roots = [{n: np.sqrt(_pooled(s)) for n, s in found.items()} for found in (squares, inner)]
    return Expected(values, roots[0], unit, roots[1], coarse=cost >= HEAVY and not fine)


def _in_float32(spec: OpSpec, bound: Bound, moved: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """The reference evaluated in float32; nothing where it insists on another precision."""
    try:
        return run(spec, bound, {n: t.to(torch.float32) if t.is_floating_point() else t for n, t in moved.items()})
    except SpecError:
        return {}


def _cost(bound: Bound) -> float:
    """Roughly the operations of one reference run."""
    work, elements = bound.work, sum(t.size for t in bound.inputs.values())
    return work["matmul"] + work["vector"] + 8 * work["scalar"] + 16 * elements


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch's thread pool costs a small run up to fifty times its own time when cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _difference(moved: np.ndarray, value: np.ndarray) -> np.ndarray:
    """How far an output moved; 0 where it is not finite, since infinities and NaN are compared as such."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.subtract(moved, value, dtype=np.float64)
    return np.where(np.isfinite(difference), difference, 0.0)


def _match(spec: OpSpec, name: str) -> object:
    return spec.inputs[name].match if name in spec.in_place else spec.outputs[name].match


def _by_signs(exact: torch.Tensor, unit: float, generator: torch.Generator) -> torch.Tensor:
    """`exact` with every element a unit larger or smaller: shows fully how far a result moves that one term decides."""
    signs = torch.randint(0, 2, exact.shape, dtype=torch.int8, generator=generator)
    return signs.to(torch.float64).mul_(2 * unit).add_(1 - unit).mul_(exact)


def _evenly(exact: torch.Tensor, unit: float, generator: torch.Generator) -> torch.Tensor:
    """`exact` with every element moved by up to 1.7 units, a unit root mean square.

    A guard: where two terms compete, equal signs cancel and hide how far a result moves.
    """
    moves = torch.randint(-127, 128, exact.shape, dtype=torch.int8, generator=generator)
    return moves.to(torch.float64).mul_(unit * 3**0.5 / 127).add_(1).mul_(exact)


def run(spec: OpSpec, bound: Bound, tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """The reference's results by name, checked against the bound spec."""
    path = spec.folder / "reference.py"
    given = {n: t.clone() for n, t in tensors.items()}
    try:
        with torch.inference_mode():
            results = load(path, spec.op)(*given.values())
    except Exception as wrong:  # whatever a stranger's reference raises is one kind of error to us
        raise SpecError(f"{path}: {spec.op} fails on {bound.case}: {type(wrong).__name__}: {wrong}") from wrong
    for name, tensor in tensors.items():
        if not torch.equal(torch.nan_to_num(given[name]), torch.nan_to_num(tensor)):
            raise SpecError(f"{path}: {spec.op} modifies its argument {name}; work on a clone and return it")
    wanted = {n: bound.inputs[n] for n in bound.in_place} | bound.outputs
    if not isinstance(results, tuple) or len(results) != len(wanted):
        got = f"{len(results)} values" if isinstance(results, tuple) else type(results).__name__
        raise SpecError(f"{path}: {spec.op} returns {got}; return a tuple of {len(wanted)}: {', '.join(wanted)}")
    return {n: _checked(path, n, t, w) for (n, w), t in zip(wanted.items(), results, strict=True)}


@cache
def load(path: Path, op: str) -> Reference:
    """The function `op` of a reference file. Raises SpecError if importing it fails."""
    module_spec = importlib.util.spec_from_file_location(f"nkismith_reference_{op}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as wrong:
        raise SpecError(f"{path} does not import: {type(wrong).__name__}: {wrong}") from wrong
    return getattr(module, op)


def as_tensors(inputs: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Arrays as the reference gets them: float64, and int64 for integers."""
    return {
        n: torch.from_numpy(a.astype(np.int64)) if a.dtype.kind in "iu" else torch.from_numpy(a.astype(np.float64))
        for n, a in inputs.items()
    }


def _checked(path: Path, name: str, got: object, want: TensorType) -> np.ndarray:
    if not isinstance(got, torch.Tensor):
        raise SpecError(f"{path}: {name} is a {type(got).__name__}, not a tensor")
    if tuple(got.shape) != want.shape:
        raise SpecError(f"{path}: {name} has shape {list(got.shape)}, the spec says {list(want.shape)}")
    if got.is_floating_point() != (want.dtype in FLOATS):
        raise SpecError(f"{path}: {name} is {got.dtype}, the spec says {want.dtype}")
    return got.detach().numpy()


def _pooled(squares: np.ndarray) -> np.ndarray:
    """Guard against a pattern that by chance moves an element little: half of what its row or column moves.

    The smaller of the two means, so that a large neighbour row or column lends nothing to a small one.
    """
    if squares.ndim < 2 or squares.size == 0:
        return squares
    row = squares.mean(axis=-1, keepdims=True)
    column = squares.mean(axis=tuple(range(squares.ndim - 1)), keepdims=True)
    return np.maximum(squares, np.minimum(row, column) / 2)
