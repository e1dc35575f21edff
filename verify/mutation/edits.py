"""Mistakes in what one recorded instruction computes: operators, numbers, flags, inputs that change places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

from nkismith.verify.mutation.mutant import Apply, Edit, Kind, Scene, is_read
from nkismith.verify.simulator.instruction import Definition, Option, define
from nkismith.verify.simulator.operators import ALU
from nkismith.verify.simulator.trace import Instr

# What a slip of the pen or of the mind would write instead, nearest first.
OPERATORS: dict[str, tuple[str, ...]] = {
    "add": ("subtract",),
    "subtract": ("add",),
    "multiply": ("add",),
    "maximum": ("minimum",),
    "minimum": ("maximum",),
    "power": ("multiply",),
    "equal": ("not_equal",),
    "not_equal": ("equal",),
    "greater": ("less", "greater_equal"),
    "greater_equal": ("less_equal", "greater"),
    "less": ("greater", "less_equal"),
    "less_equal": ("greater_equal", "less"),
    "logical_and": ("logical_or",),
    "logical_or": ("logical_and",),
    "bitwise_and": ("bitwise_or",),
    "bitwise_or": ("bitwise_and",),
    "left_shift": ("right_shift",),
    "right_shift": ("left_shift",),
    "exp": ("sigmoid",),
    "square": ("abs",),
    "sqrt": ("rsqrt",),
    "rsqrt": ("sqrt", "reciprocal"),
    "reciprocal": ("rsqrt",),
    "gelu_apprx_tanh": ("gelu_apprx_sigmoid", "gelu"),
    "gelu_apprx_sigmoid": ("gelu",),
    "gelu": ("gelu_apprx_sigmoid",),
    "silu": ("sigmoid",),
    "sigmoid": ("tanh",),
    "tanh": ("sigmoid",),
    "log": ("sqrt",),
    "erf": ("tanh",),
    "copy": ("relu",),
}
# A number or vector that leaves the other input of the operator as it is.
NEUTRAL = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "power": 1.0, "maximum": -inf, "minimum": inf}
LIMIT = 1e30  # numbers from here on stand for infinity
REDUCE_COMMANDS = {"reset_reduce": "reduce", "reduce": "reset_reduce", "reset": "idle"}
# Parameters that say how or where an instruction runs, or which shapes it sees, not what it computes.
NOT_NUMBERS = ("axis", "priority", "tile_position", "tile_size", "seed", "result")
COMMUTATIVE = frozenset(
    {
        "add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
        "bitwise_and", "bitwise_or", "bitwise_xor",
    }
)  # fmt: skip


def edits(instr: Instr) -> Iterator[Edit]:
    """Every mistake of this sort that could be made in an instruction like this one."""
    definition = define(instr.op)
    if "result" not in instr.attrs:  # without its scalar nothing after it would run
        yield Edit(Kind.DROP, f"{instr.op} is left out", lambda i, scene, before: None)
    yield from _swaps(instr, definition)
    yield from _operators(instr, definition)
    yield from _neutral(instr)
    yield from _numbers(instr, definition)
    yield from _flags(instr)


def _swaps(instr: Instr, definition: Definition) -> Iterator[Edit]:
    names = [n for n in instr.operands if is_read(definition, n) and n not in definition.writes]
    for position, first in enumerate(names):
        for second in names[position + 1 :]:
            a, b = instr.operands[first], instr.operands[second]
            if a.shape == b.shape and a != b:
                yield Edit(Kind.SWAP, f"{instr.op}: {first} and {second} change places", _swap(first, second))
    for name in ("reverse0", "reverse1"):
        if name in instr.attrs and instr.attrs.get(f"op{name[-1]}") in ALU:
            yield Edit(Kind.SWAP, f"{instr.op}: {name}={not instr.attrs[name]}", _attribute(name, _opposite))


def _swap(first: str, second: str) -> Apply:
    def apply(instr: Instr, scene: Scene, before: Instr | None) -> Instr:
        operands = instr.operands
        return replace(instr, operands={**operands, first: operands[second], second: operands[first]})

    return apply


def _operators(instr: Instr, definition: Definition) -> Iterator[Edit]:
    for name, kind in definition.params.items():
        old = instr.attrs.get(name)
        if isinstance(kind, Option) and kind.kind == "op" and isinstance(old, str):
            for new in OPERATORS.get(old, ("copy",)):
                yield Edit(Kind.OPERATOR, f"{instr.op}: {name}={new}, not {old}", _attribute(name, lambda _, n=new: n))


def _neutral(instr: Instr) -> Iterator[Edit]:
    values: dict[str, object] = {"scale": 1.0, "bias": 0.0}
    for name, operator in (("operand0", "op0"), ("operand1", "op1"), ("operand", "op")):
        if instr.attrs.get(operator) in NEUTRAL:
            values[name] = NEUTRAL[str(instr.attrs[operator])]
    for name, value in values.items():
        given = instr.operands.get(name, instr.attrs.get(name))
        if given is not None and given != value:
            yield Edit(Kind.NEUTRAL, f"{instr.op}: without its {name}", _number(name, value))


def _number(name: str, value: object) -> Apply:
    """A number in place of a vector or another number."""

    def apply(instr: Instr, scene: Scene, before: Instr | None) -> Instr:
        operands = {n: o for n, o in instr.operands.items() if n != name}
        return replace(instr, operands=operands, attrs={**instr.attrs, name: value})

    return apply


def _numbers(instr: Instr, definition: Definition) -> Iterator[Edit]:
    for name, old in instr.attrs.items():
        parameter = definition.signature.parameters.get(name)
        if isinstance(old, bool) or name in NOT_NUMBERS or (parameter is not None and parameter.default == old):
            continue
        if isinstance(old, int | float):
            yield Edit(Kind.NUMBER, f"{instr.op}: {name}={_other(old):g}, not {old:g}", _attribute(name, _other))
        elif isinstance(old, tuple) and old and all(isinstance(step, tuple) for step in old):
            yield Edit(Kind.NUMBER, f"{instr.op}: the first step of {name} is one more", _attribute(name, _steeper))


def _other(number: int | float) -> int | float:
    """One more; twice as much for a fraction, to which one more would not be a slip; the other end for a limit."""
    if abs(number) > LIMIT:
        return -number
    return number * 2 if isinstance(number, float) and number != 0 else number + 1


def _steeper(pattern: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    (step, count), *rest = pattern
    return ((step + 1, count), *rest)


def _flags(instr: Instr) -> Iterator[Edit]:
    for name in ("negate", "accumulate"):
        if name in instr.attrs:
            for new in (True, False):
                if instr.attrs[name] is not new:
                    yield Edit(Kind.FLAG, f"{instr.op}: {name}={new}", _attribute(name, lambda _, n=new: n))
    command = instr.attrs.get("reduce_cmd")
    if command in REDUCE_COMMANDS and (instr.attrs.get("reduce_op") or "reduce_res" in instr.operands):
        other = REDUCE_COMMANDS[str(command)]
        yield Edit(
            Kind.FLAG, f"{instr.op}: reduce_cmd={other}, not {command}", _attribute("reduce_cmd", lambda _: other)
        )


def _opposite(flag: object) -> bool:
    return not flag


def _attribute(name: str, change: Callable) -> Apply:
    def apply(instr: Instr, scene: Scene, before: Instr | None) -> Instr:
        return replace(instr, attrs={**instr.attrs, name: change(instr.attrs[name])}) if name in instr.attrs else instr

    return apply
