"""How an instruction is defined, once, and the table of all of them.

A definition is a class under `@instruction`: its `signature` is the documented one with each parameter annotated
by what it is (a tile read or written, a per-partition vector or number, an operator, an option), its docstring the
meaning in words, `check` the rules beyond the generic ones, `run` the meaning in NumPy, `taint` how unwritten data
flows. The recorder, legality, execution, timing, docs and prompts are projections.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nkismith.verify.simulator import recorder
from nkismith.verify.simulator.dtypes import DTYPES, PACKED
from nkismith.verify.simulator.enums import ENUMS, dge_mode
from nkismith.verify.simulator.enums import engine as Engine
from nkismith.verify.simulator.errors import UnsupportedInstruction
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister
from nkismith.verify.simulator.tensor import NkiTensor, refuse
from nkismith.verify.simulator.trace import MAX_TUPLES, WORD

_PACKAGE = __name__.rpartition(".")[0]  # of this simulator
ON_CHIP = ("sbuf", "psum")
SBUF = ("sbuf",)
PSUM = ("psum",)
HBM = ("hbm",)
DMA_MEMORY = ("sbuf", "hbm")
ANY_DTYPE = frozenset(DTYPES) - {"int64", "uint64"}
NUMBERS = ANY_DTYPE - PACKED  # what an engine can compute with


@dataclass(frozen=True, slots=True)
class Tile:
    """A tensor parameter: its role, where it may live, whether a view of it may be indirect (`NkiTensor.indirect`).

    `vector` also takes a number, else a (P, 1) tile; `number` also takes a number, else a tile of any shape.
    """

    role: str  # in, out, inout
    spaces: tuple[str, ...] = ON_CHIP
    dtypes: frozenset[str] = ANY_DTYPE
    optional: bool = False
    vector: bool = False
    many: bool = False  # a list of tiles (dma_compute srcs)
    indirect: bool = False
    number: bool = False
    aligned: bool = True  # its start partition obeys the rule for its partition count


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter that is not a tensor: `op` (an operator of nki.language), an enum, or a plain value."""

    kind: str = "plain"  # op, enum, plain, scalar (a number, NkiScalar or register)


def out(
    spaces: tuple[str, ...] = ON_CHIP,
    dtypes: frozenset[str] = ANY_DTYPE,
    optional: bool = False,
    indirect: bool = False,
    aligned: bool = True,
) -> Any:
    """A tile the instruction writes."""
    return Tile("out", spaces, dtypes, optional, indirect=indirect, aligned=aligned)


def inout(spaces: tuple[str, ...] = ON_CHIP, dtypes: frozenset[str] = ANY_DTYPE, indirect: bool = False) -> Any:
    """A tile the instruction reads and writes."""
    return Tile("inout", spaces, dtypes, indirect=indirect)


def tile(
    spaces: tuple[str, ...] = ON_CHIP,
    dtypes: frozenset[str] = ANY_DTYPE,
    optional: bool = False,
    indirect: bool = False,
    aligned: bool = True,
) -> Any:
    """A tile the instruction reads."""
    return Tile("in", spaces, dtypes, optional, indirect=indirect, aligned=aligned)


def vector(spaces: tuple[str, ...] = ON_CHIP, dtypes: frozenset[str] = NUMBERS) -> Any:
    """A number, or a (P, 1) tile with one value a partition."""
    return Tile("in", spaces, dtypes, optional=True, vector=True)


def tile_or_number(spaces: tuple[str, ...] = ON_CHIP, dtypes: frozenset[str] = ANY_DTYPE) -> Any:
    """A tile the instruction reads, or one number for all elements."""
    return Tile("in", spaces, dtypes, optional=True, number=True)


def tiles(spaces: tuple[str, ...] = DMA_MEMORY) -> Any:
    """A list of tiles the instruction reads, recorded as name0, name1, ..."""
    return Tile("in", spaces, many=True)


class NamedOperator:
    """Base of what op parameters take."""

    __slots__ = ()
    nki_op: str  # its name in nki.language


@dataclass(frozen=True, slots=True)
class DefaultOperator(NamedOperator):
    """An operator as the default of a parameter: nki.language has the same one by name."""

    nki_op: str

    def __repr__(self) -> str:
        return f"nl.{self.nki_op}"


OP: Any = Option("op")
ENUM: Any = Option("enum")
PLAIN: Any = Option("plain")
SCALAR: Any = Option("scalar")


@dataclass(frozen=True, slots=True)
class Definition:
    """One entry of the table."""

    name: str
    engines: tuple[str, ...]  # the first is the default
    params: dict[str, Tile | Option]
    signature: inspect.Signature
    doc: str
    check: Callable[..., None]
    run: Callable[..., object | None]
    taint: str | Callable[..., None]
    engine: Callable[..., str]
    accumulates: Callable[..., bool]  # does it also read what it writes to `dst`
    reads: frozenset[str]  # tensor parameters that are read
    writes: tuple[str, ...]  # tensor parameters that are written
    since: str
    until: str | None
    targets: tuple[str, ...]
    limits: tuple[str, ...]
    cost: str
    public: bool
    call: Callable[..., Any] = field(repr=False)


TABLE: dict[str, Definition] = {}


def instruction(
    *,
    engines: tuple[str, ...],
    taint: str | None = None,
    since: str = "2.29",
    until: str | None = None,
    targets: tuple[str, ...] = ("trn2", "trn3"),
    limits: tuple[str, ...] = (),
    cost: str = "not documented",
    public: bool = True,
) -> Callable[[type], Definition]:
    """Register a definition class. `taint` names how unwritten data flows when the class has no `taint` method:
    `elementwise` (element i of the sources reaches element i), `rows` (anything in a partition reaches all of that
    partition), `all`, `run` (the definition's `run` marks what it writes, as what it reads depends on values).
    Returns the Definition, whose `call` is what kernels call."""

    def register(cls: type) -> Definition:
        namespace = vars(cls)
        name = cls.__name__.rstrip("_")
        raw = inspect.signature(namespace["signature"])
        params = {p.name: _kind(p) for p in raw.parameters.values()}
        signature = raw.replace(
            parameters=[
                *(p.replace(annotation=inspect.Parameter.empty) for p in raw.parameters.values()),
                *(
                    [inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)]
                    if namespace.get("named", True)
                    else []
                ),
            ],
            return_annotation=inspect.Signature.empty,
        )
        definition = Definition(
            name=name,
            engines=engines,
            params=params,
            signature=signature,
            doc=inspect.cleandoc(cls.__doc__ or ""),
            check=namespace.get("check", _nothing),
            run=namespace["run"],
            taint=namespace.get("taint", taint or "all"),
            engine=namespace.get("engine", _chosen_engine),
            accumulates=namespace.get("accumulates", _never),
            reads=frozenset(n for n, p in params.items() if isinstance(p, Tile) and p.role in ("in", "inout")),
            writes=tuple(n for n, p in params.items() if isinstance(p, Tile) and p.role in ("out", "inout")),
            since=since,
            until=until,
            targets=targets,
            limits=limits,
            cost=cost,
            public=public,
            call=_recording_call(name, params, signature),
        )
        TABLE[name] = definition
        return definition

    return register


def _kind(parameter: inspect.Parameter) -> Tile | Option:
    kind = parameter.annotation
    if isinstance(kind, str):
        raise TypeError(f"annotate {parameter.name} with a value: definition files must not postpone annotations")
    return kind


def _nothing(site: Any) -> None:
    """No rule beyond the generic ones."""


def _never(site: Any) -> bool:
    return False


def _chosen_engine(site: Any) -> str:
    """The author's engine, else the first of the definition."""
    asked = site.attr("engine")
    return asked if asked and asked != "unknown" else site.definition.engines[0]


# -- recording: one generated function an instruction, with the documented signature ------------------------------


def _recording_call(name: str, params: dict[str, Tile | Option], signature: inspect.Signature) -> Callable[..., Any]:
    defaults = {f"_d_{p.name}": p.default for p in signature.parameters.values()}
    heads, lines = [], []
    for p in signature.parameters.values():
        heads.append(p.name if p.default is inspect.Parameter.empty else f"{p.name}=_d_{p.name}")
        kind = params.get(p.name)
        if kind is None:
            continue
        if isinstance(kind, Tile) and kind.many:
            lines.append(f"_many(operands, {p.name!r}, {p.name})")
        elif isinstance(kind, Tile) and (kind.vector or kind.number):
            lines.append(
                f"if type({p.name}) is NkiTensor: operands[{p.name!r}] = {p.name}.operand()\n"
                f"    elif {p.name} is not None: attrs[{p.name!r}] = _number({name!r}, {p.name!r}, {p.name})"
            )
        elif isinstance(kind, Tile):
            optional = f"elif {p.name} is not None" if kind.optional else "else"
            lines.append(
                f"if type({p.name}) is NkiTensor: operands[{p.name!r}] = {p.name}.operand()\n"
                f"    {optional}: operands[{p.name!r}] = _tile({name!r}, {p.name!r}, {p.name})"
            )
        elif kind.kind == "op":
            lines.append(f"attrs[{p.name!r}] = None if {p.name} is None else _op({name!r}, {p.name!r}, {p.name})")
        elif kind.kind == "enum":
            lines.append(
                f"attrs[{p.name!r}] = _d_{p.name}_name if {p.name} is _d_{p.name} "
                f"else _enum({name!r}, {p.name!r}, {p.name}, _d_{p.name})"
            )
            default = p.default
            defaults[f"_d_{p.name}_name"] = default.name if isinstance(default, Enum) else None
        else:
            lines.append(f"attrs[{p.name!r}] = _plain({name!r}, {p.name!r}, {p.name})")
    has_name = "name" in signature.parameters
    scopes = " or ".join(
        f"(type({n}) is NkiTensor and {n}._storage.scope)"
        for n, k in params.items()
        if isinstance(k, Tile) and not k.many
    )
    tensors = ", ".join(n for n, k in params.items() if isinstance(k, Tile) and not k.many)
    check = f"    if {scopes}: _check_scopes(recorder, {tensors})\n" if scopes else ""
    source = (
        f"def {name}({', '.join(heads)}):\n"
        f"    operands, attrs = {{}}, {{}}\n"
        + "".join(f"    {line}\n" for line in lines)
        + "    recorder = _current()\n"
        + check
        + f"    return recorder.emit({name!r}, operands, attrs, {'name' if has_name else 'None'})\n"
    )
    scope: dict[str, Any] = {
        "NkiTensor": NkiTensor, "_many": _many, "_number": _number, "_tile": _tile, "_op": _op, "_enum": _enum,
        "_plain": _plain, "_current": recorder.current, "_check_scopes": _check_scopes, **defaults,
    }  # fmt: skip
    exec(compile(source, f"<instruction {name}>", "exec"), scope)
    return scope[name]


def _check_scopes(record: recorder.Recorder, *tensors: Any) -> None:
    for tensor in tensors:
        if type(tensor) is NkiTensor:
            record.check_live(tensor)


def _tile(op: str, name: str, value: Any) -> Any:
    # A tile grid hands over its operand. An object of the kernel that has the same fields means nothing on the device.
    data = getattr(value, "data", None) if type(value).__module__.startswith(_PACKAGE) else None
    if isinstance(data, NkiTensor):
        return data.operand()
    raise refuse(
        "operand_type", f"nisa.{op}: {name} is {type(value).__name__}, not a tensor",
        "pass a tile made by nl.ndarray, or a view of one",
    )  # fmt: skip


def _many(operands: dict[str, Any], name: str, values: Any) -> None:
    _check_scopes(recorder.current(), *values)
    for i, value in enumerate(values):
        operands[f"{name}{i}"] = value.operand() if type(value) is NkiTensor else _tile("dma_compute", name, value)


def _number(op: str, name: str, value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return _word(op, name, value)
    if isinstance(value, NkiScalar | VirtualRegister):
        return value.ref
    data = getattr(value, "__float__", None)
    if data is not None and not isinstance(value, str):
        return float(value)
    raise refuse("operand_type", f"nisa.{op}: {name} is {type(value).__name__}", "a number or a (P, 1) tile")


_SHORT = {"max": "maximum", "min": "minimum"}  # the pages write reduce_op=nl.max and mean the operator


def _op(op: str, name: str, value: Any) -> str:
    if not isinstance(value, NamedOperator):
        raise refuse("operator", f"nisa.{op}: {name}={value!r} is not an operator", "pass e.g. nl.add or nl.exp")
    return value.nki_op if op == "tensor_partition_reduce" else _SHORT.get(value.nki_op, value.nki_op)


def _enum(op: str, name: str, value: Any, default: Any) -> Any:
    if value is None:
        return None
    if type(value) is int and type(default) is dge_mode and value in {m.value for m in dge_mode}:
        # Documented as refused since 0.3, and what the vendor's own library passes to this day.
        recorder.current().warn(f"nisa.{op}: {name}={value} is a raw integer; use a member of nki.isa.dge_mode")
        return dge_mode(value).name
    if not isinstance(value, Enum):
        kind = type(default).__name__ if isinstance(default, Enum) else "an enumeration"
        raise refuse("enum_value", f"nisa.{op}: {name}={value!r}", f"use a member of nki.isa.{kind}")
    if type(value) not in ENUMS or (isinstance(default, Enum) and type(value) is not type(default)):
        kind = type(default).__name__ if isinstance(default, Enum) else type(value).__name__
        raise refuse("enum_value", f"nisa.{op}: {name}={value}", f"use a member of nki.isa.{kind}")
    return value.name


def _word(op: str, name: str, value: int | float) -> int | float:
    """A number that fits the constant field of an instruction."""
    if isinstance(value, bool | float):
        return value
    number = int.__int__(value)  # of a member of an IntEnum, too: without the arithmetic that it may bring along
    if not -WORD <= number < WORD:
        raise refuse("operand_type", f"nisa.{op}: {name}={number} has more than 64 bits", "pass a float")
    return number


def _plain(op: str, name: str, value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, str):
        return value and str.__str__(value)
    if isinstance(value, bool | int | float):
        return _word(op, name, value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, NkiScalar | VirtualRegister):
        return value.ref
    if isinstance(value, tuple | list) and depth < MAX_TUPLES:
        return tuple(_plain(op, name, v, depth + 1) for v in value)
    if type(value) is NkiTensor:
        raise refuse("operand_type", f"nisa.{op}: {name} takes a value known while building, not a tensor", "a number")
    if hasattr(value, "__index__"):
        return _word(op, name, int(value))
    if hasattr(value, "__float__"):
        return float(value)
    raise refuse("operand_type", f"nisa.{op}: {name} is {type(value).__name__}", "a plain value")


def define(name: str) -> Definition:
    """The definition of an instruction. Raises UnsupportedInstruction for a name the table does not hold."""
    found = TABLE.get(name)
    if found is None:
        raise UnsupportedInstruction(f"nki.isa.{name}")
    return found


UNKNOWN = Engine.unknown
