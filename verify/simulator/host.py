"""What a kernel's Python may learn from a tensor while the kernel runs: nothing, except in the eager simulator.

`nki.simulate` executes every instruction as it is issued, so `print(tile)` shows values and `assert nl.equal(a, b)`
checks them. While a kernel is only recorded there are no values, and both see none.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nkismith.verify.simulator.views import View

_asserts: dict[tuple[CodeType, int], bool] = {}


def values_of(view: View) -> np.ndarray | None:
    """The values behind a view, or None where there are none (recording, a run-time address, a finished kernel)."""
    from nkismith.verify.simulator.recorder import active

    recorder = active()
    observer: Any = recorder.observer if recorder else None
    if observer is None or view.is_indirect():
        return None
    return observer.values(view.operand())


def asserts() -> bool:
    """Is the truth value that the calling kernel line asks for the condition of an `assert`?"""
    frame = sys._getframe(2)
    key = (frame.f_code, frame.f_lasti)
    found = _asserts.get(key)
    if found is None:
        found = _asserts[key] = _is_assert(*key)
    return found


def _is_assert(code: CodeType, at: int) -> bool:
    # `assert x` compiles to a test that jumps over LOAD_ASSERTION_ERROR; pytest rewrites it to one of a variable
    # whose name tells.
    instructions = list(dis.get_instructions(code))
    before = [i for i in instructions if i.offset < at][-3:]
    if any(str(i.argval).startswith("@py_assert") for i in before):
        return True
    for instruction in [i for i in instructions if i.offset >= at][:4]:
        if instruction.opname == "LOAD_ASSERTION_ERROR":
            return True
        if instruction.opname not in ("TO_BOOL", "COPY", "CACHE", "NOT_TAKEN") and "JUMP" not in instruction.opname:
            return False
    return False
