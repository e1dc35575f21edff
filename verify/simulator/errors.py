"""What can go wrong while a kernel is recorded or executed.

NkiValidationError            the program breaks a rule of the hardware or of the API (the documented name)
├── LegalityError             a named rule, with line, what was seen, the limit and the way out
│   └── CallError             the parameters of a call; a TypeError, too, as Python itself would raise
├── UnsupportedInstruction    a name this simulator does not define; it never guesses
└── ForeignAttribute          a draft uses an attribute of its own naming on an object that is not its own
SimulatorError                our own misuse (no kernel is being recorded, a malformed trace)
└── TraceError                bytes that are not a valid trace
"""

from __future__ import annotations

from typing import ClassVar


class NkiValidationError(Exception):
    """A constraint of the hardware or the API is violated."""

    made: ClassVar[list[NkiValidationError] | None] = None  # all of them, where somebody looks for unheard ones

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if NkiValidationError.made is not None:
            NkiValidationError.made.append(self)


class LegalityError(NkiValidationError):
    """A named rule refuses the program.

    Attributes: rule (see ``legality.rules``), line (1-based line in the kernel's file, or None), what (what was
    seen and the limit it breaks), fix (one sentence).
    """

    def __init__(self, rule: str, what: str, fix: str = "", line: int | None = None, file: str = "") -> None:
        self.rule, self.what, self.fix, self.line, self.file = rule, what, fix, line, file
        super().__init__(rule, what, fix, line, file)

    def __str__(self) -> str:
        where = "" if self.line is None else f"{self.file or 'kernel'}:{self.line}: "
        fix = f". Fix: {self.fix}" if self.fix else ""
        return f"{where}[{self.rule}] {self.what.rstrip('.') if fix else self.what}{fix}"


class CallError(LegalityError, TypeError):
    """A function is called with parameters that it does not have, or without one that it needs."""


class UnsupportedInstruction(NkiValidationError, AttributeError):
    """The kernel uses a name that the definition table does not hold.

    Attributes: name, line (1-based line in the kernel's file, or None), why (what is known of the name), what (both).
    """

    def __init__(self, name: str, line: int | None = None, why: str = "") -> None:
        super().__init__(name, line, why)
        self.name, self.line, self.why = name, line, why  # after: AttributeError has a `name` of its own

    @property
    def what(self) -> str:
        return f"{self.name} is not supported by this simulator{': ' + self.why if self.why else '.'}"

    def __str__(self) -> str:
        return self.what if self.line is None else f"line {self.line}: {self.what}"


class ForeignAttribute(NkiValidationError):
    """An attribute that only classes of the draft define, on an object of another class."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name, kind)
        self.name, self.kind = name, kind

    def __str__(self) -> str:
        return f".{self.name} of a {self.kind}, which is no object of a class of the draft"


class SimulatorError(Exception):
    """The simulator was used wrongly."""


class TraceError(SimulatorError):
    """Bytes or data that do not form a valid trace."""
