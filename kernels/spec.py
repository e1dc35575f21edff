"""The op spec: what must be computed, for which shapes, and how right it must be.

A spec is a folder with `spec.yaml` and `reference.py`. `load` reads and checks both; `OpSpec.bind` turns one
case (sizes, dtype, values of run-time scalars) into shapes, bytes and operations. Everything downstream (the
prompt, the lint, the cases, the comparison, the floor) is derived from here, so a mistake is an error with
its place, never a default.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import Field, PrivateAttr, ValidationError, model_validator

from nkismith.kernels.consistency import RESERVED, check_consistency, check_reference
from nkismith.kernels.expressions import ExpressionError, parse
from nkismith.kernels.relations import Relations, parse_relations
from nkismith.kernels.schema import (
    CaseLists,
    Dim,
    Input,
    Limits,
    Output,
    Part,
    RelationLines,
    Size,
    Tolerance,
    Work,
    nearest,
)
from nkismith.kernels.tensors import TensorType, numpy_dtype

ROOT = Path(__file__).parent  # the bundled op folders

Group = Literal["smoke", "edge", "production"]
GROUPS: tuple[Group, ...] = ("smoke", "edge", "production")


class SpecError(Exception):
    """A spec or a case that is wrong: one line with file, key, what was seen and how to fix it."""


class UnknownOp(SpecError):
    """No bundled op and no folder of that name; the message lists the nearest names."""


@dataclass(frozen=True)
class Case:
    """One point of a spec's domain: a size per dim, the case dtype, flat values of run-time scalars."""

    dims: dict[str, int]
    dtype: str | None = None
    control: dict[str, list[int]] | None = None
    label: str = ""

    def __str__(self) -> str:
        if self.label:
            return self.label
        parts = [f"{k}={v}" for k, v in self.dims.items()] + ([self.dtype] if self.dtype else [])
        return " ".join(parts + [f"{k}={','.join(map(str, v))}" for k, v in (self.control or {}).items()])


@dataclass(frozen=True)
class Bound:
    """A spec at one case.

    work: bytes under `hbm_read` and `hbm_write`; elements under `vector`, `scalar`, `gpsimd`; FLOP under `matmul`.
    control: flat values of the run-time integer tensors. reduction: how many terms one output element sums.
    """

    case: Case
    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType]
    in_place: tuple[str, ...]
    work: dict[str, float]
    control: dict[str, list[int]]
    reduction: int


class OpSpec(Part):
    """The contract of one op, as in spec.yaml (sections: `kernels/schema.py`). Built by `load`."""

    op: str
    summary: str = Field(min_length=10)
    maths: str = Field(min_length=1)
    dims: dict[str, Dim] = Field(min_length=1)
    constraints: tuple[str, ...] = ()
    inputs: dict[str, Input] = Field(min_length=1)
    outputs: dict[str, Output] = Field(default_factory=dict)
    in_place: tuple[str, ...] = ()
    control: dict[str, RelationLines] = Field(default_factory=dict)
    accumulate: Literal["float32", "bfloat16", "float16"] = "float32"
    reduction: Size | None = None
    work: Work
    case_lists: CaseLists = Field(alias="cases")
    targets: tuple[Literal["trn2", "trn3"], ...] = Field(default=("trn2", "trn3"), min_length=1)
    notes: str = ""
    tolerance: Tolerance | None = None
    limits: Limits = Limits()
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _consistent(self) -> OpSpec:
        check_consistency(self)
        return self

    @property
    def folder(self) -> Path:
        """Where spec.yaml and reference.py are."""
        return self._folder

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes a case may choose from; empty if every tensor's dtype is fixed."""
        return next((i.dtype for i in self.inputs.values() if isinstance(i.dtype, tuple)), ())

    @property
    def relations(self) -> dict[str, Relations]:
        """The relations of every integer input, in input order."""
        found = {}
        for name, tensor in self.inputs.items():
            lines = self.control.get(name, tensor.values)
            if isinstance(lines, tuple):
                found[name] = parse_relations(name, lines, tensor.shape[-1])
        return found

    def dtype_of(self, tensor: str, case_dtype: str | None = None) -> str:
        """dtype name of an input or output for a case dtype (None: the spec's first); follows `x.dtype`."""
        declared = (self.inputs.get(tensor) or self.outputs[tensor]).dtype
        if isinstance(declared, tuple):
            return case_dtype or declared[0]
        return self.dtype_of(declared.removesuffix(".dtype"), case_dtype) if declared.endswith(".dtype") else declared

    def cases(self, group: Group) -> list[Case]:
        """The listed cases of a group; one that names no dtype stands for each dtype of the spec."""
        found = []
        for listed in getattr(self.case_lists, group):
            dims = {k: v for k, v in listed.items() if k not in RESERVED}
            control = {k: v if isinstance(v, list) else [v] for k, v in listed.get("control", {}).items()}
            for dtype in (listed["dtype"],) if "dtype" in listed else self.dtypes or (None,):
                case = Case(dims, dtype, control or None)
                name = f"{listed['label']}: " if "label" in listed else ""
                found.append(Case(dims, dtype, control or None, f"{name}{case}"))
        return found

    def bind(self, case: Case) -> Bound:
        """Shapes, dtypes, work and run-time scalars at `case`.

        Raises SpecError naming the dim, dtype, constraint or control value that does not fit the spec.
        """
        where = f"{self.op}, case {case}"
        env: dict[str, Any] = _bound_dims(self, case, where)
        if self.dtypes:
            if case.dtype not in (None, *self.dtypes):
                raise SpecError(f"{where}: dtype {case.dtype} is not one of {', '.join(self.dtypes)}")
            env["b"] = numpy_dtype(case.dtype or self.dtypes[0]).itemsize
        elif case.dtype not in (None, *(self.dtype_of(n) for n in self.inputs)):
            raise SpecError(f"{where}: dtype {case.dtype} is none of this op's; its dtypes are fixed, leave it out")
        try:
            inputs = {n: _tensor(self, n, i.shape, env, case) for n, i in self.inputs.items()}
            outputs = {n: _tensor(self, n, o.shape, env, case) for n, o in self.outputs.items()}
            env |= {f"{n}.itemsize": numpy_dtype(t.dtype).itemsize for n, t in (inputs | outputs).items()}
            control = _bound_control(self, case, inputs, env, where)
            env |= {n: v[0] for n, v in control.items() if len(v) == 1}
            work = {k: float(parse(v).value(env)) for k, v in self.work.model_dump().items()}
            longest = max(max(t.shape) for t in inputs.values())
            reduction = longest if self.reduction is None else parse(self.reduction).integer(env)
        except ExpressionError as wrong:
            raise SpecError(f"{where}: {wrong}") from None
        return Bound(case, inputs, outputs, self.in_place, work, control, max(1, reduction))


def names() -> list[str]:
    """The bundled ops, sorted."""
    return sorted(p.parent.name for p in ROOT.glob("*/spec.yaml"))


def load(name_or_dir: str | Path) -> OpSpec:
    """Read and check the spec of a bundled op, or of a folder anywhere that holds spec.yaml and reference.py.

    Raises UnknownOp with the nearest names, or SpecError with file, key and remedy.
    """
    folder = ROOT / name_or_dir if str(name_or_dir) in names() else Path(name_or_dir)
    path = folder / "spec.yaml"
    if not folder.is_dir():
        known = names()
        raise UnknownOp(f'No op named "{name_or_dir}"{nearest(name_or_dir, known)} Known ops: {", ".join(known)}.')
    if not path.is_file():
        raise SpecError(f"{folder} holds no spec.yaml. `nkismith new NAME` writes one to start from.")
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        what = " ".join(str(wrong).replace('in "<unicode string>", ', "at ").split())
        raise SpecError(f"{path}: not readable as YAML: {what}") from None
    if not isinstance(data, dict):
        raise SpecError(f"{path}: must be a mapping that starts with `op: NAME`")
    try:
        spec = OpSpec.model_validate(data)
    except ValidationError as wrong:
        raise SpecError(f"{path}: {_first_error(wrong)}") from None
    spec._folder = folder
    try:
        check_reference(folder / "reference.py", spec)
    except ValueError as wrong:
        raise SpecError(str(wrong)) from None
    for group in GROUPS:
        for case in spec.cases(group):
            try:
                spec.bind(case)
            except SpecError as wrong:
                raise SpecError(f"{path}: cases.{group}: {wrong}") from None
    return spec


class _UniqueKeys(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys without a word; a spec must not lose an input that way."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} appears twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _first_error(error: ValidationError) -> str:
    """`inputs.x.shape: what (and 2 more)`. The branches of a union that fail at one place are one mistake."""
    found: dict[str, Any] = {}
    for one in error.errors():
        found.setdefault(_place(one), one)
    place, first = next(iter(found.items()))
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        what = "is missing"
    elif first["type"] == "literal_error":
        what = f"{first['input']!r} is none of {first['ctx']['expected']}"
    elif first["type"] == "model_type":
        what = f"must be a mapping, as in {{key: value}}, not {first['input']!r}"
    others = sum(not place.startswith(other) and not other.startswith(place) for other in found)
    return f"{place + ': ' if place else ''}{what}" + (f" (and {others} more)" if others else "")


def _place(error: Any) -> str:
    """The keys of the file that lead to a mistake, without pydantic's names of a union's branches."""
    branch = ("function-", "tuple[", "constrained", "literal[", "Ulp", "ValidChoice", "Values")
    return ".".join(str(part) for part in error["loc"] if not str(part).startswith(branch))


def _bound_dims(spec: OpSpec, case: Case, where: str) -> dict[str, Any]:
    for name in case.dims:
        if name not in spec.dims:
            raise SpecError(f"{where}: unknown dim {name!r}{nearest(name, spec.dims)} Dims: {', '.join(spec.dims)}")
    for name, dim in spec.dims.items():
        if name not in case.dims:
            raise SpecError(f"{where}: gives no size for {name} ({dim.text})")
        size = case.dims[name]
        if isinstance(size, bool) or not isinstance(size, int) or not dim.allows(size):
            raise SpecError(f"{where}: {name}={size!r} is outside the domain ({dim.text})")
    for text in spec.constraints:
        if not parse(text).holds(case.dims):
            raise SpecError(f"{where}: breaks the constraint {text!r}")
    return dict(case.dims)


def _bound_control(
    spec: OpSpec, case: Case, inputs: dict[str, TensorType], env: dict[str, Any], where: str
) -> dict[str, list[int]]:
    given = case.control or {}
    for name in given:
        if name not in spec.control:
            raise SpecError(f"{where}: {name!r} is not a control{nearest(name, spec.control)}")
    seen = dict(env)
    control: dict[str, list[int]] = {}
    for name in spec.control:
        if name not in given:
            raise SpecError(f"{where}: gives no value for the run-time scalar {name}; add control: {{{name}: ...}}")
        values = np.array(given[name], dtype=np.int64)
        if values.size != inputs[name].size:
            raise SpecError(f"{where}: control {name} has {values.size} values, its shape is {inputs[name].shape}")
        seen[name] = values.reshape(inputs[name].shape)
        broken = spec.relations[name].broken_by(seen[name], seen)
        if broken:
            raise SpecError(f"{where}: {broken}")
        control[name] = values.ravel().tolist()
    return control


def _tensor(spec: OpSpec, name: str, shape: tuple[Size, ...], env: dict[str, Any], case: Case) -> TensorType:
    sizes = tuple(parse(size).integer(env) for size in shape)
    if min(sizes) < 1:
        raise ExpressionError(f"the shape of {name} is {list(sizes)}, every size must be at least 1")
    return TensorType(sizes, spec.dtype_of(name, case.dtype))
