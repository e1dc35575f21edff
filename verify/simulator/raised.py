"""What is raised while a kernel runs as Python, told as a refusal with the kernel's line where it is one."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from nkismith.verify.simulator.errors import CallError, LegalityError, UnsupportedInstruction
from nkismith.verify.simulator.tensor import NkiTensor

# Frames that are no part of a kernel: ours, and those through which a `with` of ours calls us.
NOT_THE_KERNEL = (str(Path(__file__).parent), "<instruction ", contextlib.__file__)
_CALL = re.compile(r"([\w.<>]+)\(\) ((?:got|missing|takes) .*)")


@contextlib.contextmanager
def told_with_its_line() -> Iterator[None]:
    """Complete refusals with line and file, and make refusals of wrong calls of the simulator; the rest passes."""
    try:
        yield
    except LegalityError as error:
        if error.line is None:
            error.line, error.file = _raised_at(error.__traceback__)
        raise
    except UnsupportedInstruction as error:
        if error.line is None:
            error.line = _raised_at(error.__traceback__)[0]
        raise
    except TypeError as error:
        refusal = _wrong_call(error)
        if refusal is None:
            raise
        raise refusal from error
    except AttributeError as error:
        if not _of_no_tensor(error):
            raise
        line, file = _raised_at(error.__traceback__)
        what = f"{type(error.obj).__name__} where a function of nki.language takes a tensor"
        raise LegalityError("operand_type", what, "load it into a tile, or use nl.full", line, file) from error


def _wrong_call(error: TypeError) -> CallError | None:
    """The refusal of a call of nki.isa or nki.language with parameters that it does not have; None for any other."""
    from nkismith.verify.simulator.instruction import TABLE
    from nkismith.verify.simulator.language import surface

    found = _CALL.match(str(error))
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if found is None or trace is None:
        return None
    name, frame = found[1], trace.tb_frame
    operator: Any = frame.f_locals.get("self") if frame.f_code.co_name == "__call__" else None
    if hasattr(operator, "nki_op"):  # nl.exp and its like
        name, called = f"nl.{operator.nki_op}", operator._call
    elif not frame.f_code.co_filename.startswith(str(Path(__file__).parent)):
        called = TABLE[name].call if name in TABLE else surface.names().get(name)
        if frame.f_globals.get(name, called) is not called:  # a function of the kernel's own
            return None
    else:
        return None
    if not callable(called):
        return None
    line, file = _raised_at(error.__traceback__)
    taken = ", ".join(inspect.signature(called).parameters)
    return CallError("call_parameters", f"{name}() {found[2]}", f"its parameters are {taken}", line, file)


def _of_no_tensor(error: AttributeError) -> bool:
    """Did a function of ours look for what every tensor has on something that is none?"""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(str(Path(__file__).parent))
    return ours and hasattr(NkiTensor, error.name or "") and not isinstance(error.obj, NkiTensor)


def _raised_at(trace: TracebackType | None) -> tuple[int | None, str]:
    """Line and file of the innermost kernel frame of a traceback."""
    line, file = None, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(NOT_THE_KERNEL):
            line, file = trace.tb_lineno, Path(name).name
        trace = trace.tb_next
    return line, file
