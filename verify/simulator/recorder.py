"""The recorder: what `nki.isa` calls append to while a kernel runs as Python.

One recorder records one program (one core). `current()` is the recorder of the kernel being built; an `observer`
(the eager simulator) sees each node as it is issued. No tensor value exists here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np

from nkismith.verify.simulator.dtypes import DTYPES, DType, named
from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.errors import CallError, LegalityError, SimulatorError
from nkismith.verify.simulator.hardware import Target, target
from nkismith.verify.simulator.raised import NOT_THE_KERNEL, told_with_its_line
from nkismith.verify.simulator.scalars import INT32_MAX, INT32_MIN, NkiScalar, VirtualRegister
from nkismith.verify.simulator.tensor import NkiTensor, Storage, refuse
from nkismith.verify.simulator.trace import (
    MAX_ELEMENTS,
    MAX_NESTING,
    MAX_TEXT,
    Buffer,
    Instr,
    Loop,
    Node,
    Operand,
    Ordered,
    Program,
    ScalarRef,
    Trace,
    While,
    walk,
)

_INTERNAL: dict[str, bool] = {}
_active: Recorder | None = None


class Observer(Protocol):
    """Sees nodes as they are recorded (the eager simulator)."""

    def allocated(self, buffer: Buffer) -> None: ...
    def issued(self, instr: Instr) -> None: ...
    def loop_opened(self, loop: Loop | While) -> None: ...
    def loop_closed(self, loop: Loop | While) -> None: ...
    def values(self, operand: Operand) -> np.ndarray | None: ...


class NkiInstruction:
    """Handle of a recorded instruction."""

    __slots__ = ("_recorder", "id", "scope")

    def __init__(self, recorder: Recorder, id: int, scope: tuple[int, ...]) -> None:
        if type(recorder) is not Recorder:
            raise TypeError("instruction handles are returned by nki.isa")
        self._recorder, self.id, self.scope = recorder, id, scope

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Run this instruction after each producer; both in the same loop nesting, or the producer further out."""
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                what = f"depends_on takes instruction handles, not {type(producer).__name__}"
                raise self._recorder.located(CallError("operand_type", what, "keep what the call of nki.isa returned"))
            if self.scope[: len(producer.scope)] != producer.scope:
                raise self._recorder.located(
                    refuse(
                        "depends_on_loop", "a dependency that crosses a compiled loop",
                        "wire instructions of the same loop body, or a producer further out",
                    )
                )  # fmt: skip
            if producer._recorder is not self._recorder:
                raise self._recorder.located(
                    refuse("deadlock", "depends_on an instruction of another core", "wait with nisa.core_barrier")
                )
            self._recorder.add_edge(self.id, producer.id)
        return self


class Recorder:
    """Records one program. Buffers of all programs of a kernel share one list."""

    def __init__(
        self,
        target_name: str,
        sdk: str,
        lnc: int,
        core: int = 0,
        buffers: list[Buffer] | None = None,
        observer: Observer | None = None,
        max_nodes: int = 4_000_000,
    ) -> None:
        self.target: Target = target(target_name)
        self.sdk, self.lnc, self.core, self.observer = sdk, lnc, core, observer
        self.kernel: object = None  # what is being built
        self.buffers = [] if buffers is None else buffers
        self.body: list[Node] = []
        self.edges: list[tuple[int, int]] = []
        self.files: dict[str, int] = {}
        self.warnings: list[tuple[int, str]] = []
        self.shared: dict[tuple[str, int], Buffer] = {}
        self.identities: dict[tuple[int, str], NkiTensor] = {}  # constants of nl.shared_identity_matrix
        self._bodies = [self.body]
        self._scopes: tuple[int, ...] = ()
        self._ordered = 0
        self._instructions = 0
        self._loops = 0
        self._scalars = 0
        self._shared_counts: dict[str, int] = {}
        self._max_nodes = max_nodes

    # -- where in the kernel --------------------------------------------------------------------------------------

    def where(self) -> tuple[int, int]:
        """(line, file index) of the innermost frame outside the simulator."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            internal = _INTERNAL.get(name)
            if internal is None:
                internal = _INTERNAL[name] = name.startswith(NOT_THE_KERNEL)
            if not internal:
                index = self.files.get(name)
                if index is None:
                    index = self.files[name] = len(self.files)
                return frame.f_lineno, index
            frame = frame.f_back
        return 0, 0

    def located(self, error: LegalityError) -> LegalityError:
        """The error with the kernel line that is being executed."""
        if error.line is None:
            error.line, index = self.where()
            error.file = self.file_name(index)
        return error

    def file_name(self, index: int) -> str:
        """The name of a source file, without its folder."""
        return next((Path(f).name for f, i in self.files.items() if i == index), "")

    def warn(self, text: str) -> None:
        """Note something that hardware accepts and the documentation does not."""
        self.warnings.append((self.where()[0], text))

    # -- storage --------------------------------------------------------------------------------------------------

    def allocate(
        self,
        shape: Any,
        dtype: Any,
        region: MemoryRegion,
        name: str = "",
        address: Any = None,
        kind: str = "internal",
        data: bytes = b"",
    ) -> NkiTensor:
        """New storage and the view that covers it. Raises LegalityError on a bad shape, dtype, region or address."""
        extents, kind_of = _shape(shape), named(dtype)
        if name:
            _check_name(name)
        if kind_of is None:
            raise self.located(refuse("dtype", f"unknown dtype {dtype!r}", "use an nl dtype such as nl.bfloat16"))
        if not isinstance(region, MemoryRegion):
            raise self.located(
                refuse("buffer", f"buffer={region!r}", "use nl.sbuf, nl.psum, nl.shared_hbm or nl.private_hbm")
            )
        space = region.space
        if space != "hbm" and extents == (1,):
            extents = (1, 1)  # the documentation writes register tiles so
        if space != "hbm" and len(extents) < 2:
            raise self.located(
                refuse("tile_shape", f"an on-chip tensor of shape {extents}", "give a partition and a free dimension")
            )
        shared = region is MemoryRegion.shared_hbm or kind == "input"
        paired = shared and self.lnc > 1 and kind != "input"
        if paired:  # the n-th tensor of a name in one core is the n-th of that name in the other; unnamed alike
            key = (name, self._shared_counts.get(name, 0))
            self._shared_counts[name] = key[1] + 1
            known = self.shared.get(key)
            if known is not None:
                self._check_pair(known, extents, kind_of, data)
                return self._view(known, region)
        buffer = Buffer(
            id=len(self.buffers),
            name=name or f"t{len(self.buffers)}",
            space=space,
            kind=kind,
            shared=shared,
            dtype=kind_of,
            shape=extents,
            address=_address(address, space),
            core=-1 if shared else self.core,
            at=self._instructions,
            scope=self._scopes[-1] if self._scopes and not shared else 0,
            line=0 if kind == "input" else self.where()[0],
            data=data,
        )
        self.buffers.append(buffer)
        if paired:
            self.shared[key] = buffer
        if self.observer:
            self.observer.allocated(buffer)
        return self._view(buffer, region)

    def _view(self, buffer: Buffer, region: MemoryRegion) -> NkiTensor:
        kind = DTYPES[buffer.dtype]
        storage = Storage(buffer.id, region, kind, buffer.shape, buffer.name, buffer.scope, buffer.address)
        return NkiTensor(buffer.shape, kind, storage)

    def _check_pair(self, known: Buffer, shape: tuple[int, ...], dtype: DType, data: bytes) -> None:
        if (known.shape, known.dtype, known.data) != (shape, dtype, data):
            raise self.located(
                refuse(
                    "shared_hbm_mismatch",
                    f"shared HBM tensor {known.name!r} is {shape} {dtype} here and {known.shape} {known.dtype} "
                    "in the other core",
                    "declare it alike, and in the same order, in both cores",
                )
            )

    # -- nodes ----------------------------------------------------------------------------------------------------

    def emit(self, op: str, operands: dict[str, Operand], attrs: dict[str, Any], name: str | None) -> NkiInstruction:
        """Append an instruction."""
        self._instructions += 1
        if self._instructions > self._max_nodes:
            raise self.located(
                refuse(
                    "instruction_budget", f"more than {self._max_nodes:,} instructions",
                    "roll the outer loop into nl.fori_loop",
                )
            )  # fmt: skip
        if name:
            _check_name(name)
        line, file = self.where()
        instr = Instr(self._instructions, op, operands, attrs, line, file, name or "")
        self._bodies[-1].append(instr)
        if self.observer:
            self.observer.issued(instr)
        return NkiInstruction(self, instr.id, self._scopes)

    def schedule(self, pairs: tuple[tuple[str, str], ...]) -> None:
        """Add dependencies between named instructions: (consumer, producer). Raises LegalityError for a name that
        no instruction has."""
        if not pairs:
            return
        named: dict[str, list[int]] = {}
        for instr in walk(self.body):
            if instr.name:
                named.setdefault(instr.name, []).append(instr.id)
        for consumer, producer in pairs:
            for name in (consumer, producer):
                if name not in named:
                    raise refuse(
                        "schedule_name", f"with_schedule names {name!r}, and no instruction has that name",
                        f"pass name={name!r} to one; there are {', '.join(sorted(named)[:5]) or 'no names'}",
                    )  # fmt: skip
            for c in named[consumer]:
                for p in named[producer]:
                    self.add_edge(c, p)

    def add_edge(self, consumer: int, producer: int) -> None:
        """Note a dependency. Raises LegalityError for a producer that comes later: an engine executes in program order,
        and what a later instruction reads or writes may depend on the consumer already."""
        if producer >= consumer:
            raise self.located(
                refuse(
                    "deadlock", "an instruction that waits for itself or for one that comes after it",
                    "issue the producer first",
                )
            )  # fmt: skip
        self.edges.append((consumer, producer))

    def check_live(self, tensor: NkiTensor) -> None:
        """Refuse a tile whose compiled loop has ended."""
        scope = tensor._storage.scope
        if scope and scope not in self._scopes:
            raise self.located(
                refuse(
                    "loop_scope",
                    f"{tensor.name!r} {tensor.shape} was made in the body of a compiled loop and is used outside it",
                    "allocate it before the loop",
                )
            )

    def new_scalar(self) -> ScalarRef:
        """A fresh SSA id."""
        self._scalars += 1
        return ScalarRef(self._scalars - 1)

    def scalar(self, op: str, dtype: str, operands: dict[str, Operand] | None = None, **attrs: Any) -> NkiScalar:
        """Append a scalar instruction and return its result."""
        ref = self.new_scalar()
        self.emit(op, operands or {}, {"result": ref, "dtype": dtype, **attrs}, None)
        return NkiScalar(ref, dtype)

    @contextmanager
    def _inside(self, node: Loop | While | Ordered) -> Iterator[None]:
        if len(self._bodies) > MAX_NESTING:
            raise self.located(
                refuse("instruction_budget", f"loops nest deeper than {MAX_NESTING}", "end the recursion, or unroll")
            )
        self._bodies[-1].append(node)
        self._bodies.append(node.body)
        looping = not isinstance(node, Ordered)
        if looping:
            self._scopes = (*self._scopes, node.id)  # type: ignore[union-attr]
        else:
            self._ordered += 1
        try:
            yield
        finally:
            self._bodies.pop()
            if looping:
                self._scopes = self._scopes[:-1]
            else:
                self._ordered -= 1

    def _open_loop(self) -> int:
        if self._ordered:
            raise self.located(
                refuse("loop_in_no_reorder", "a compiled loop inside nl.no_reorder", "put no_reorder inside the body")
            )
        self._loops += 1
        return self._loops

    def fori(self, lower: Any, upper: Any, body: Callable[[Any], Any], step: int) -> None:
        """Record nl.fori_loop: the body is called once."""
        with self.counted(lower, upper, step) as index:
            body(index)

    @contextmanager
    def counted(self, lower: Any, upper: Any, step: int) -> Iterator[NkiScalar | VirtualRegister]:
        """Record a counted loop; the with-block is its body and gets the index."""
        bounds = [self._loop_bound(bound) for bound in (lower, upper)]
        if type(step) is not int or not 1 <= step <= INT32_MAX:
            raise self.located(refuse("loop_step", f"step {step!r}", "a positive compile-time int of 32 bits"))
        index = self.new_scalar()
        line, file = self.where()
        loop = Loop(self._open_loop(), index.id, bounds[0], bounds[1], step, [], line, file)
        registers = isinstance(lower, VirtualRegister) or isinstance(upper, VirtualRegister)
        with self._inside(loop):
            if self.observer:
                self.observer.loop_opened(loop)
            yield VirtualRegister(index, frozen=True) if registers else NkiScalar(index)
        if self.observer:
            self.observer.loop_closed(loop)

    def _loop_bound(self, bound: Any) -> int | ScalarRef:
        if isinstance(bound, NkiScalar):
            if bound.dtype == "int64":
                raise self.located(refuse("scalar_width", "an int64 scalar as a loop bound", "load the bound as int32"))
            if bound.is_comparison:
                raise self.located(refuse("scalar_comparison", "a comparison as a loop bound", "use arithmetic"))
        if isinstance(bound, NkiScalar | VirtualRegister):
            return bound.ref
        if isinstance(bound, NkiTensor) or not hasattr(bound, "__index__"):
            raise self.located(
                refuse(
                    "loop_bound", f"a loop bound of type {type(bound).__name__}",
                    "an int, an NkiScalar (nisa.scalar_load) or a VirtualRegister",
                )
            )  # fmt: skip
        if not INT32_MIN <= int(bound) <= INT32_MAX:
            raise self.located(
                refuse("loop_bound", f"a loop bound of {int(bound)}", "32 bits: count blocks, and scale the index")
            )
        return int(bound)

    def while_(self, init: Any, body: Callable[[Any], Any]) -> None:
        """Record nl.while_loop: runs while the condition is non-zero; the body returns the next condition."""
        self._check_condition(init)
        condition = self.new_scalar()
        line, file = self.where()
        loop = While(self._open_loop(), condition.id, init.ref, None, [], line, file)
        carried: Any = NkiScalar(condition) if isinstance(init, NkiScalar) else VirtualRegister(condition)
        with self._inside(loop):
            if self.observer:
                self.observer.loop_opened(loop)
            result = body(carried)
            self._check_condition(result)
            loop.next = result.ref
        if self.observer:
            self.observer.loop_closed(loop)

    def _check_condition(self, value: Any) -> None:
        if not isinstance(value, NkiScalar | VirtualRegister):
            raise self.located(
                refuse(
                    "while_condition", f"{type(value).__name__} as the condition of a while_loop",
                    "start from a register and return the next one from the body",
                )
            )  # fmt: skip
        if isinstance(value, NkiScalar) and value.is_comparison:
            raise self.located(
                refuse("scalar_comparison", "a comparison as a condition", "loop while a counter is not zero")
            )

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Record nl.no_reorder."""
        line, file = self.where()
        with self._inside(Ordered([], line, file)):
            yield

    def program(self) -> Program:
        """What was recorded."""
        return Program(self.core, self.body, tuple(self.edges), self._scalars)


def current() -> Recorder:
    """The recorder of the kernel being built. Raises SimulatorError outside a kernel."""
    if _active is None:
        raise SimulatorError(
            "nki.isa and nki.language run inside a kernel: call it through nki.simulate(kernel)(...) or nkismith check"
        )
    return _active


def active() -> Recorder | None:
    """The recorder of the kernel being built, if any."""
    return _active


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Make `recorder` current."""
    global _active
    previous, _active = _active, recorder
    try:
        with told_with_its_line():
            yield recorder
    finally:
        _active = previous


def _address(address: Any, space: str) -> tuple[int, ...] | None:
    if address is None:
        return None
    parts = tuple(address) if isinstance(address, tuple | list) else (address,)
    if len(parts) != (1 if space == "hbm" else 2) or not all(type(a) is int and 0 <= a < MAX_ELEMENTS for a in parts):
        raise current().located(
            refuse("address", f"address {address!r} in {space}", "(start partition, byte offset); (offset,) in HBM")
        )
    return parts


def _shape(shape: Any) -> tuple[int, ...]:
    extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if all(type(n) is int for n in extents):
        whole = extents
    elif any(isinstance(n, bool | NkiTensor | NkiScalar) or not hasattr(n, "__index__") for n in extents):
        whole = ()
    else:
        whole = tuple(int(n) for n in extents)
    if not whole or any(n < 1 for n in whole):
        raise current().located(refuse("tile_shape", f"shape {shape!r}", "positive compile-time integers"))
    if prod(whole) > MAX_ELEMENTS:
        raise current().located(refuse("tile_shape", f"shape {shape!r}", "no memory holds that many elements"))
    return whole


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or len(name) > MAX_TEXT:
        shown = f"{len(name):,} characters" if isinstance(name, str) else type(name).__name__
        raise current().located(refuse("operand_type", f"name= of {shown}", f"a string of at most {MAX_TEXT}"))


def finish(entry: str, recorders: list[Recorder], inputs: list[NkiTensor], outputs: list[NkiTensor]) -> Trace:
    """The trace of a kernel from the recorders of its cores."""
    first = recorders[0]
    files = tuple(Path(f).name for f in first.files) or ("kernel.py",)
    buffers = list(first.buffers)
    for tensor in outputs:
        buffer = buffers[tensor._storage.id]
        if buffer.kind == "internal":
            buffers[buffer.id] = replace(buffer, kind="output")
    return Trace(
        entry=entry,
        sdk=first.sdk,
        target=first.target.name,
        lnc=first.lnc,
        buffers=tuple(buffers),
        programs=tuple(r.program() for r in recorders),
        inputs=tuple(t._storage.id for t in inputs),
        outputs=tuple(t.operand() for t in outputs),
        files=files,
        warnings=tuple(w for r in recorders for w in r.warnings),
    )
