"""One instruction in its trace: what definitions look at to check, run and cost it."""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.hardware import Target
from nkismith.verify.simulator.instruction import Definition
from nkismith.verify.simulator.trace import Buffer, Instr, Operand


class Site:
    """An instruction with its definition, the trace's buffers and the target."""

    __slots__ = ("_engine", "buffers", "definition", "files", "instr", "lnc", "target")

    def __init__(
        self,
        instr: Instr,
        definition: Definition,
        buffers: tuple[Buffer, ...] | list[Buffer],
        target: Target,
        lnc: int = 1,
        files: tuple[str, ...] = (),
    ) -> None:
        self.instr, self.definition, self.buffers = instr, definition, buffers
        self.target, self.lnc, self.files = target, lnc, files
        self._engine: str | None = None

    def has(self, name: str) -> bool:
        """Is the tensor parameter given?"""
        return name in self.instr.operands

    def operand(self, name: str) -> Operand:
        """The operand of a tensor parameter."""
        return self.instr.operands[name]

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of a parameter that is not a tensor."""
        return self.instr.attrs.get(name, default)

    def buffer(self, name: str) -> Buffer:
        """The buffer behind a tensor parameter."""
        return self.buffers[self.instr.operands[name].buffer]

    def space(self, name: str) -> str:
        """sbuf, psum or hbm."""
        return self.buffers[self.instr.operands[name].buffer].space

    def dtype(self, name: str) -> str:
        """dtype name of a tensor parameter."""
        return self.instr.operands[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape, partitions first on chip."""
        return self.instr.operands[name].shape

    def partitions(self, name: str) -> int:
        """Partitions of an on-chip operand."""
        return self.instr.operands[name].partitions

    def free(self, name: str) -> int:
        """Elements a partition."""
        return self.instr.operands[name].free

    def bytes(self, name: str) -> int:
        """Bytes in all."""
        operand = self.instr.operands[name]
        return operand.size * ITEMSIZE[operand.dtype]

    @property
    def engine(self) -> str:
        """The engine that executes it."""
        if self._engine is None:
            self._engine = self.definition.engine(self)
        return self._engine

    def refuse(self, rule: str, what: str, fix: str = "") -> LegalityError:
        """The refusal of this instruction, to raise."""
        file = self.files[self.instr.file] if self.instr.file < len(self.files) else ""
        return LegalityError(rule, f"{self.instr.op}: {what}", fix, self.instr.line, file)
