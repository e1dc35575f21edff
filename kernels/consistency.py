"""What must agree inside one spec: names, dtypes, relations, expressions, and the reference's signature.

Each check raises ValueError with the key it looked at; `spec.load` adds the file.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

from nkismith.kernels.expressions import ExpressionError, parse
from nkismith.kernels.relations import parse_relations
from nkismith.kernels.schema import ValidChoice, nearest
from nkismith.kernels.tensors import FLOATS, INTEGERS

if TYPE_CHECKING:
    from nkismith.kernels.spec import OpSpec

# Words of case entries and of work expressions, which a dim or tensor may therefore not be called.
RESERVED = ("b", "min", "max", "dtype", "control", "label")


def check_consistency(spec: OpSpec) -> None:
    """Everything that can be said about a spec without looking at its cases."""
    _check_names(spec)
    _check_dtypes(spec)
    _check_integers(spec)
    _check_expressions(spec)


def check_reference(path: Path, spec: OpSpec) -> None:
    """reference.py has one public function, named like the op, that takes the spec's inputs in order.

    The file is read, not run: a spec from a stranger's folder must not execute by being listed.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing: it holds the PyTorch meaning, def {spec.op}({', '.join(spec.inputs)})")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
    except (SyntaxError, UnicodeDecodeError, ValueError) as wrong:
        raise ValueError(f"{path} is not Python: {wrong}") from None
    public = [n for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    if [f.name for f in public] != [spec.op]:
        found = ", ".join(f.name for f in public) or "none"
        raise ValueError(f"{path}: needs exactly one public function, {spec.op}; found {found}")
    arguments = [a.arg for a in public[0].args.args]
    if arguments != list(spec.inputs):
        raise ValueError(f"{path}: {spec.op} takes ({', '.join(arguments)}), the inputs are ({', '.join(spec.inputs)})")


def _check_names(spec: OpSpec) -> None:
    taken: dict[str, str] = {}
    groups = {"op": [spec.op], "dims": spec.dims, "inputs": spec.inputs, "outputs": spec.outputs}
    for section, members in groups.items():
        for name in members:
            if not name.isidentifier() or keyword.iskeyword(name):
                raise ValueError(f"{section}: {name!r} is not a Python name, and kernels are Python functions")
            if name in RESERVED:
                raise ValueError(f"{section}: {name!r} has a meaning of its own here, choose another name")
            if name in taken:
                raise ValueError(f"{section}: {name!r} is already used under {taken[name]}")
            taken[name] = section
    for section, names_ in {"in_place": spec.in_place, "control": spec.control}.items():
        for name in names_:
            if name not in spec.inputs:
                raise ValueError(f"{section}: {name!r} is not an input{nearest(name, spec.inputs)}")
    if not spec.outputs and not spec.in_place:
        raise ValueError("outputs: the op has neither outputs nor in_place inputs, so nothing can be verified")


def _check_dtypes(spec: OpSpec) -> None:
    choices = {i.dtype for i in spec.inputs.values() if isinstance(i.dtype, tuple)}
    if len(choices) > 1:
        raise ValueError(f"inputs: two different dtype lists {sorted(choices)}; list once, then write `x.dtype`")
    for name, tensor in (spec.inputs | spec.outputs).items():  # type: ignore[operator]
        section = "inputs" if name in spec.inputs else "outputs"
        for dtype in tensor.dtype if isinstance(tensor.dtype, tuple) else (tensor.dtype,):
            owner = dtype.removesuffix(".dtype")
            if dtype.endswith(".dtype"):
                if owner not in spec.inputs or owner == name or str(spec.inputs[owner].dtype).endswith(".dtype"):
                    raise ValueError(f"{section}.{name}.dtype: {dtype} must name an input that states its own dtype")
            elif dtype not in FLOATS + INTEGERS:
                near = nearest(dtype, FLOATS + INTEGERS)
                raise ValueError(f"{section}.{name}.dtype: unknown dtype {dtype!r}{near}")
    for name, output in spec.outputs.items():
        if isinstance(output.match, ValidChoice) and output.match.valid_choice not in spec.inputs | spec.outputs:  # type: ignore[operator]
            raise ValueError(f"outputs.{name}.match: {output.match.valid_choice!r} is not an input or output")
        choice = isinstance(output.match, ValidChoice) or output.match == "valid_choice"
        if choice and spec.dtype_of(name) not in INTEGERS:
            raise ValueError(f"outputs.{name}.match: valid_choice judges indices, but the dtype is {output.dtype}")


def _check_integers(spec: OpSpec) -> None:
    earlier = set(spec.dims)
    for name, tensor in spec.inputs.items():
        integer = spec.dtype_of(name) in INTEGERS
        where = f"control.{name}" if name in spec.control else f"inputs.{name}.values"
        if name in spec.control and (tensor.values is not None or not integer):
            raise ValueError(f"{where}: a control is an integer input whose relation stands under `control` only")
        if not integer and isinstance(tensor.values, tuple):
            raise ValueError(f"{where}: relations are for integer inputs; for floats write {{kind: normal}}")
        if integer:
            lines: object = spec.control.get(name) or tensor.values
            if not isinstance(lines, tuple):
                raise ValueError(f"{where}: an integer input needs its relation, such as '0 <= {name} < N'")
            try:
                relations = parse_relations(name, lines, tensor.shape[-1])
            except ExpressionError as wrong:
                raise ValueError(f"{where}: {wrong}") from None
            if unknown := relations.needs - earlier:
                raise ValueError(f"{where}: {_unknown(unknown, earlier)}; a relation sees dims and earlier integers")
            earlier.add(name)


def _check_expressions(spec: OpSpec) -> None:
    dims = set(spec.dims)
    sizes = {n: i.shape for n, i in spec.inputs.items()} | {n: o.shape for n, o in spec.outputs.items()}
    for name, shape in sizes.items():
        section = "inputs" if name in spec.inputs else "outputs"
        for axis, size in enumerate(shape):
            _check_expression(f"{section}.{name}.shape[{axis}]", size, dims)
    for number, text in enumerate(spec.constraints):
        _check_expression(f"constraints[{number}]", text, dims, comparison=True)
    scalars = {n for n in spec.control if spec.inputs[n].shape == (1,)}
    itemsizes = {f"{n}.itemsize" for n in sizes}
    for key, text in spec.work.model_dump().items():
        _check_expression(f"work.{key}", text, dims | scalars | itemsizes | ({"b"} if spec.dtypes else set()))
    if spec.reduction is not None:
        _check_expression("reduction", spec.reduction, dims)


def _check_expression(where: str, text: str | int, known: Set[str], comparison: bool = False) -> None:
    try:
        expression = parse(text)
    except ExpressionError as wrong:
        raise ValueError(f"{where}: {wrong}") from None
    if unknown := expression.names - known:
        raise ValueError(f"{where}: {_unknown(unknown, known)}")
    if expression.is_comparison != comparison:
        raise ValueError(f"{where}: {text!r} must be {'a comparison' if comparison else 'a number, not a comparison'}")


def _unknown(unknown: Set[str], known: Set[str]) -> str:
    first = sorted(unknown)[0]
    return f"unknown name {first!r}{nearest(first, known)} Known here: {', '.join(sorted(known))}"
