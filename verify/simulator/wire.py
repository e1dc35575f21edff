"""Traces as bytes: msgpack, capped and validated on the way in.

The judge reads these bytes from a process it does not trust, so `decode` checks every type, range and reference
before a Trace exists. Source of the format: this file.
"""

from __future__ import annotations

import gc
from math import prod
from typing import Any

import msgpack

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.errors import TraceError
from nkismith.verify.simulator.machine import extent, row_elements
from nkismith.verify.simulator.trace import (
    MAX_ELEMENTS,
    MAX_NESTING,
    MAX_TEXT,
    MAX_TUPLES,
    VERSION,
    WORD,
    Buffer,
    Dynamic,
    Instr,
    Loop,
    Node,
    Operand,
    Ordered,
    Program,
    ScalarRef,
    Trace,
    While,
)

MAX_BYTES = 1 << 30
SPACES = frozenset({"sbuf", "psum", "hbm"})
KINDS = frozenset({"input", "output", "internal", "constant"})
DYNAMIC_KINDS = frozenset({"scalar", "vector", "gather"})


def encode(trace: Trace) -> bytes:
    """A trace as msgpack bytes."""
    return msgpack.packb(
        [
            VERSION,
            trace.entry,
            trace.sdk,
            trace.target,
            trace.lnc,
            [
                [
                    b.id, b.name, b.space, b.kind, b.shared, b.dtype, b.shape, b.address, b.core, b.at, b.scope,
                    b.line, b.data,
                ]
                for b in trace.buffers
            ],
            [[p.core, [_node(n) for n in p.body], p.edges, p.scalars] for p in trace.programs],
            trace.inputs,
            trace.outputs,
            trace.files,
            trace.warnings,
        ],
        use_bin_type=True,
    )  # fmt: skip


def _node(node: Node) -> list[Any]:
    if isinstance(node, Instr):
        attrs = {k: {"$": v.id} if isinstance(v, ScalarRef) else v for k, v in node.attrs.items()}
        return [0, node.id, node.op, node.operands, attrs, node.line, node.file, node.name]
    body = [_node(n) for n in node.body]
    if isinstance(node, Loop):
        return [1, node.id, node.index, _bound(node.lower), _bound(node.upper), node.step, body, node.line, node.file]
    if isinstance(node, While):
        return [2, node.id, node.condition, node.init.id, node.next and node.next.id, body, node.line, node.file]
    return [3, body, node.line, node.file]


def _bound(value: int | ScalarRef) -> object:
    return {"$": value.id} if isinstance(value, ScalarRef) else value


def decode(data: bytes, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Read and validate a trace. Raises TraceError saying what is malformed; never trusts a length or a reference."""
    if len(data) > max_bytes:
        raise TraceError(f"the trace has {len(data):,} bytes, at most {max_bytes:,} are read")
    # A trace is millions of small objects that live as long as it does: collecting garbage while they are made only
    # looks at all of them again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _decoded(data)
    finally:
        if collecting:
            gc.enable()


def _decoded(data: bytes) -> Trace:
    try:
        raw = msgpack.unpackb(data, use_list=False, strict_map_key=True)
    except Exception as error:
        raise TraceError(f"not a msgpack trace: {error}") from error
    try:
        return _Reader().trace(raw)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise TraceError(f"malformed trace: {error}") from error


class _Reader:
    """Builds a Trace from untrusted plain values; knows how many buffers, scalars and files there are.

    Programs repeat themselves: an operand or a name that was validated once is not built again.
    """

    def __init__(self) -> None:
        self._operands: dict[Any, Operand] = {}
        self._texts: dict[str, str] = {}

    def trace(self, raw: Any) -> Trace:
        version, entry, sdk, target, lnc, buffers, programs, inputs, outputs, files, warnings = raw
        if version != VERSION:
            raise TraceError(f"trace version {version!r}, expected {VERSION}")
        self.buffers = tuple(self.buffer(i, b) for i, b in enumerate(buffers))
        self.files = tuple(_text(f) for f in files)
        ids = range(len(self.buffers))
        if [p[0] for p in programs] != list(range(_integer(lnc, 1, 2))):
            raise TraceError(f"{len(programs)} programs for {lnc} cores")
        return Trace(
            entry=_text(entry),
            sdk=_text(sdk),
            target=_text(target),
            lnc=_integer(lnc, 1, 2),
            buffers=self.buffers,
            programs=tuple(self.program(p) for p in programs),
            inputs=tuple(_member(b, ids, "input buffer") for b in inputs),
            outputs=tuple(self.inside(self.operand(o)) for o in outputs),
            files=self.files,
            warnings=tuple((_integer(line, 0), _text(text)) for line, text in warnings),
        )

    def buffer(self, index: int, raw: Any) -> Buffer:
        id_, name, space, kind, shared, dtype, shape, address, core, at, scope, line, data = raw
        if id_ != index:
            raise TraceError(f"buffer {index} calls itself {id_!r}")
        if dtype not in ITEMSIZE:
            raise TraceError(f"buffer {index} has unknown dtype {dtype!r}")
        if not isinstance(data, bytes):
            raise TraceError(f"buffer {index} has constant data of type {type(data).__name__}")
        extents = tuple(_integer(n, 1, MAX_ELEMENTS) for n in shape)
        if not extents:
            raise TraceError(f"buffer {index} has no shape")
        if len(data) != (prod(extents) * ITEMSIZE[dtype] if kind == "constant" else 0):
            raise TraceError(f"buffer {index} of kind {kind!r:.20} has {len(data):,} bytes of constant data")
        if space != "hbm" and (shared or kind != "internal"):
            raise TraceError(f"buffer {index} in {space!r:.20} is shared, or an argument, a result or a constant")
        return Buffer(
            id=index,
            name=_text(name),
            space=_member(space, SPACES, "buffer space"),
            kind=_member(kind, KINDS, "buffer kind"),
            shared=bool(shared),
            dtype=dtype,
            shape=extents,
            address=None if address is None else tuple(_integer(a, 0) for a in address),
            core=_integer(core, -1, 1),
            at=_integer(at, 0),
            scope=_integer(scope, 0),
            line=_integer(line, 0),
            data=data,
        )

    def program(self, raw: Any) -> Program:
        core, body, edges, scalars = raw
        self.scalars = _integer(scalars, 0, 1 << 24)
        self.seen: set[int] = set()
        self._operands.clear()  # what the scalars of one program make valid, another's may not
        nodes = self.nodes(body, 0)
        pairs = tuple((_integer(a, 0), _integer(b, 0)) for a, b in edges)
        for pair in pairs:
            for instr in pair:
                _member(instr, self.seen, "depends_on instruction")
        return Program(core=_integer(core, 0, 1), body=nodes, edges=pairs, scalars=self.scalars)

    def nodes(self, raw: Any, depth: int) -> list[Node]:
        if depth > MAX_NESTING:
            raise TraceError(f"loops nest deeper than {MAX_NESTING}")
        return [self.node(n, depth) for n in raw]

    def node(self, raw: Any, depth: int) -> Node:
        tag = raw[0]
        if tag == 0:
            _, id_, op, operands, attrs, line, file, name = raw
            self.seen.add(_integer(id_, 0))
            known, text = self._operands, self.text
            return Instr(
                id=id_,
                op=text(op),
                operands={text(k): known.get(v) or self.operand(v) for k, v in operands.items()},
                attrs={text(k): v if v is None or type(v) in _PLAIN else self.attr(v) for k, v in attrs.items()},
                line=_integer(line, 0),
                file=_integer(file, 0, len(self.files) - 1),
                name=text(name),
            )
        if tag == 1:
            _, id_, index, lower, upper, step, body, line, file = raw
            return Loop(
                id=_integer(id_, 1),
                index=self.scalar(index).id,
                lower=self.bound(lower),
                upper=self.bound(upper),
                step=_integer(step, 1),
                body=self.nodes(body, depth + 1),
                line=_integer(line, 0),
                file=_integer(file, 0, len(self.files) - 1),
            )
        if tag == 2:
            _, id_, condition, init, next_, body, line, file = raw
            return While(
                id=_integer(id_, 1),
                condition=self.scalar(condition).id,
                init=self.scalar(init),
                next=None if next_ is None else self.scalar(next_),
                body=self.nodes(body, depth + 1),
                line=_integer(line, 0),
                file=_integer(file, 0, len(self.files) - 1),
            )
        if tag == 3:
            _, body, line, file = raw
            return Ordered(self.nodes(body, depth + 1), _integer(line, 0), _integer(file, 0, len(self.files) - 1))
        raise TraceError(f"unknown node tag {tag!r}")

    def scalar(self, id_: Any) -> ScalarRef:
        return ScalarRef(_integer(id_, 0, self.scalars - 1))

    def bound(self, raw: Any) -> int | ScalarRef:
        return self.scalar(raw["$"]) if isinstance(raw, dict) else _integer(raw, -WORD)

    def attr(self, value: Any, depth: int = 0) -> object:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, dict) and set(value) == {"$"}:
            return self.scalar(value["$"])
        if isinstance(value, tuple) and depth < MAX_TUPLES:
            return tuple(self.attr(v, depth + 1) for v in value)
        raise TraceError(f"attribute of type {type(value).__name__}")

    def text(self, value: Any) -> str:
        found = self._texts.get(value)
        if found is None:
            found = self._texts[value] = _text(value)
        return found

    def operand(self, raw: Any, nested: bool = False) -> Operand:
        buffer, dtype, start, partitions, offset, pattern, dynamic = raw
        if dtype not in ITEMSIZE:
            raise TraceError(f"operand has unknown dtype {dtype!r}")
        storage = self.buffers[_integer(buffer, 0, len(self.buffers) - 1)]
        if (storage.space == "hbm") != (partitions == 0) or (partitions == 0 and start != 0):
            raise TraceError(f"operand on {storage.space} buffer {buffer} has {partitions!r} partitions from {start!r}")
        operand = Operand(
            buffer,
            self.text(dtype),
            _integer(start, 0),
            _integer(partitions, 0),
            _integer(offset, -WORD),
            tuple([(_integer(s, -WORD), _integer(n, 1)) for s, n in pattern]),
            None if dynamic is None or nested else self.dynamic(dynamic),
        )
        if not nested:
            self._operands[raw] = operand
        return operand

    def inside(self, operand: Operand) -> Operand:
        """The operand, if it is a static region of its buffer: no rule of an instruction looks at it."""
        buffer = self.buffers[operand.buffer]
        low, high = extent(operand)
        rows = operand.start + operand.partitions <= (buffer.shape[0] if operand.partitions else 0)
        if operand.dynamic is not None or not rows or low < 0 or high > row_elements(buffer, operand.dtype):
            raise TraceError(f"a region leaves buffer {operand.buffer}, or depends on a run-time value")
        return operand

    def dynamic(self, raw: Any) -> Dynamic:
        kind, scalar, index, stride, limit, group = raw
        if (scalar is None) == (index is None):
            raise TraceError("a dynamic term has one scalar or one index")
        return Dynamic(
            _member(kind, DYNAMIC_KINDS, "dynamic term"),
            None if scalar is None else self.scalar(scalar[0]),
            None if index is None else self.inside(self.operand(index, nested=True)),
            _integer(stride, -WORD),
            _integer(limit, 0),
            _integer(group, 0, 128),
        )


_PLAIN = frozenset({bool, int, float, str})


def _integer(value: Any, low: int, high: int = WORD - 1) -> int:
    if type(value) is not int or not low <= value <= high:
        raise TraceError(f"expected an integer in {low} .. {high}, got {value!r:.60}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_TEXT:
        raise TraceError(f"expected a short string, got {type(value).__name__}")
    return value


def _member(value: Any, allowed: Any, what: str) -> Any:
    if not isinstance(value, str | int) or value not in allowed:
        raise TraceError(f"unknown {what} {value!r:.60}")
    return value
