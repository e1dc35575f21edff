"""Run-time integers without data: scalar arithmetic on the control values of a case.

Trip counts and addresses come from small integer tensors that a case gives values to. They are followed through
copies, fills and scalar arithmetic. What cannot be followed has no value; a loop bound without one is an error.
"""

from __future__ import annotations

from nkismith.verify.simulator.dtypes import INTEGERS, ITEMSIZE
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.instructions.control import wrapped
from nkismith.verify.simulator.trace import Dynamic, Instr, Operand, ScalarRef, Trace

MOVES = frozenset({"dma_copy", "tensor_copy"})


class Values:
    """Known integers of one core: scalars by id, elements of integer buffers by (buffer, partition, element)."""

    def __init__(self, trace: Trace, control: dict[str, list[int]]) -> None:
        self.trace = trace
        self.scalars: dict[int, int] = {}
        self.producers: dict[int, int] = {}  # scalar id -> step that makes it
        self._known: dict[int, dict[tuple[int, int], int]] = {}
        for id_ in trace.inputs:
            buffer = trace.buffers[id_]
            if buffer.name in control:
                self._known[id_] = {(0, i): int(v) for i, v in enumerate(control[buffer.name])}
        self._given = frozenset(self._known)

    def scalar(self, value: object) -> int | None:
        """An int, or the value of a ScalarRef if it is known."""
        return self.scalars.get(value.id) if isinstance(value, ScalarRef) else int(value)  # type: ignore[call-overload]

    def bound(self, value: int | ScalarRef, what: str, line: int) -> int:
        """A value that the schedule needs. Raises LegalityError `unbound_scalar` if it is not known."""
        known = self.scalar(value)
        if known is None:
            inputs = [
                (i, self.trace.buffers[i].name) for i in self.trace.inputs if self.trace.buffers[i].dtype in INTEGERS
            ]
            given = ", ".join(name for i, name in inputs if i in self._given)
            if inputs and not given:
                fix = f"give values to the integer inputs of the case ({', '.join(name for _, name in inputs)})"
            else:
                named = f" or to what integer inputs decide ({given})" if given else ""
                fix = f"no schedule knows what data decide: loop to a plain int{named}, with the same work for all data"
            what = f"{what} is a run-time scalar without a value"
            raise LegalityError("unbound_scalar", what, fix, line, self.trace.files[0])
        return known

    def offset(self, term: Dynamic) -> int | None:
        """Elements that a dynamic scalar term adds to an operand's offset, if known."""
        if term.kind != "scalar":
            return None
        value = self.scalar(term.scalar) if term.scalar is not None else self._element(term.index)
        return None if value is None else value * term.stride

    def follow(self, instr: Instr, step: int) -> None:
        """Take over what an instruction, scheduled as `step`, does to known integers."""
        if instr.op in MOVES:
            self._move(instr.operands["dst"], instr.operands["src"])
        elif instr.op == "memset":
            operand = instr.operands["dst"]
            small = operand.dtype in INTEGERS and operand.size == 1
            self._put(operand, int(instr.attrs["value"]) if small else None)  # type: ignore[call-overload]
        elif "result" in instr.attrs:
            value = self._result(instr)
            ref = instr.attrs["result"]
            assert isinstance(ref, ScalarRef)
            self.producers[ref.id] = step
            self.scalars.pop(ref.id, None)
            if value is not None:
                self.scalars[ref.id] = value
        elif instr.op in ("scalar_store", "register_store"):
            self._put(instr.operands["dst"], self.scalar(instr.attrs.get("value", instr.attrs.get("src"))))
        elif "dst" in instr.operands:  # overwritten with what is not followed
            self._known.pop(instr.operands["dst"].buffer, None)

    def _result(self, instr: Instr) -> int | None:
        if instr.op in ("scalar_load", "register_load"):
            return self._element(instr.operands["src"])
        if instr.op == "register_move":
            return self.scalar(instr.attrs["src"])
        a, b = self.scalar(instr.attrs["a"]), self.scalar(instr.attrs["b"])
        if a is None or b is None:
            return None
        value = {"scalar_add": a + b, "scalar_subtract": a - b, "scalar_multiply": a * b}[instr.op]
        return int(wrapped(value, instr.attrs["dtype"]))

    def _places(self, operand: Operand) -> list[tuple[int, int]] | None:
        """(partition, element) of each element of a small operand, in order; None if its address is not known."""
        first = operand.offset
        if operand.dynamic is not None:
            moved = self.offset(operand.dynamic)
            if moved is None:
                return None
            first += moved
        places = [first]
        for stride, count in operand.pattern:
            places = [p + stride * i for p in places for i in range(count)]
        rows = range(operand.start, operand.start + operand.partitions) if operand.partitions else (0,)
        return [(row, place) for row in rows for place in places]

    def _element(self, operand: Operand | None) -> int | None:
        if operand is None or operand.buffer not in self._known or operand.size != 1:
            return None
        buffer = self.trace.buffers[operand.buffer]
        places = self._places(operand)
        if places is None or ITEMSIZE[operand.dtype] != ITEMSIZE[buffer.dtype]:
            return None
        return self._known[operand.buffer].get(places[0])

    def _put(self, operand: Operand, value: int | None) -> None:
        places = None if value is None else self._places(operand)
        if value is None or places is None:
            self._known.pop(operand.buffer, None)
        else:
            self._known.setdefault(operand.buffer, {}).update(dict.fromkeys(places, value))

    def _move(self, dst: Operand, src: Operand) -> None:
        known = self._known.get(src.buffer)
        if known is None or src.dtype != dst.dtype or src.dtype not in INTEGERS:
            if dst.buffer in self._known:
                del self._known[dst.buffer]
            return
        sources, places = self._places(src), self._places(dst)
        if sources is None or places is None:
            self._known.pop(dst.buffer, None)
            return
        into = self._known.setdefault(dst.buffer, {})
        for to, source in zip(places, sources, strict=True):
            if source in known:
                into[to] = known[source]
            else:
                into.pop(to, None)
