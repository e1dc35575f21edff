"""The recording child: the only place where a draft's Python runs.

`main` takes one msgpack request and returns one msgpack reply. It runs inside the sandbox, sees shapes and dtypes
but no values, and everything it says is validated by the judge (`wire.decode`). All imports stand here, at module
level: once the sandbox is locked no file opens.

Request: {source, entry, builtins, attributes, sdk, target, lnc, cases: [[[shape, dtype], ...], ...]}; `builtins` are
all that the draft has of Python's, `attributes` the documented ones, which it may read of any object.
Reply: a list with one item a case, {"trace": bytes} or {"error": [kind, rule or type, what, fix, line]} with kind
`load` (the source did not execute), `entry` (no such function), `legality`, `unsupported`, `access`, `raised`, or
`state` (the module was not the same after the builds as before, or a refusal was swallowed).
"""

from __future__ import annotations
import __future__

import builtins
import dataclasses
import enum
import functools
import math
import re
import sys
import typing
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import msgpack

from nkismith.verify.simulator import wire
from nkismith.verify.simulator.draft_state import DraftState
from nkismith.verify.simulator.errors import (
    ForeignAttribute,
    LegalityError,
    NkiValidationError,
    UnsupportedInstruction,
)
from nkismith.verify.simulator.install import install
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.language.grids import NkiGrid
from nkismith.verify.simulator.language.objects import NKIObject
from nkismith.verify.simulator.own_objects import OwnObjects, compile_draft
from nkismith.verify.simulator.recorder import NkiInstruction
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister
from nkismith.verify.simulator.tensor import NkiTensor

FILE, MODULE = "kernel.py", "kernel"
ALLOWED: dict[str, ModuleType] = {m.__name__: m for m in (__future__, math, functools, dataclasses, enum, typing)}
_OURS = str(Path(__file__).parent)
_TEXT = 2000  # characters of a message that the judge has use for
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def main(request: bytes) -> bytes:
    """Record the requested cases of one source."""
    asked = msgpack.unpackb(request)
    install(asked["sdk"], asked["target"], asked["lnc"])
    for name in ("simulate", "simulator"):  # they run kernels on values, which a kernel that is built has not
        vars(sys.modules["nki"]).pop(name, None)
    for kind in (NkiTensor, NkiGrid, NkiScalar, VirtualRegister, NkiInstruction):
        _hide_text(kind)
    module = sys.modules[MODULE] = ModuleType(MODULE)  # dataclasses look their class's module up there
    namespace, own = vars(module), OwnObjects()
    offered = {name: vars(builtins)[name] for name in (*asked["builtins"], "__build_class__")}
    namespace["__builtins__"] = {**offered, "__import__": _import, **own.builtins()}
    state = DraftState(namespace, namespace["__builtins__"])
    loaded = _load(asked, namespace)
    if not callable(loaded):
        return msgpack.packb([{"error": loaded}] * len(asked["cases"]))
    before = state.digests(namespace)
    replies = [_record(loaded, case, asked) for case in asked["cases"]]
    after = state.digests(namespace)
    changed = [name for name in after if before.get(name) != after[name]]
    if changed and all("trace" in reply for reply in replies):
        what = (
            f"the module is not the same after building: {', '.join(changed)[:_TEXT]} changed, or cache what can change"
        )
        error = ["state", "global_state", what, "keep state in local variables; cache only numbers and tuples", None]
        replies = [{"error": error}] * len(replies)
    return msgpack.packb(replies)


def _hide_text(kind: Any) -> None:
    """Let objects of `kind` have no text for the draft: here it is not that of the device. Our own messages have it,
    which nobody in the draft can read; text that other libraries make for the draft has not."""
    text = kind.__repr__

    def __repr__(self: Any) -> str:
        asking = sys._getframe(1).f_code.co_filename
        if not asking.startswith(_OURS) or asking == NKIObject.__repr__.__code__.co_filename:
            raise TypeError(f"a {kind.__name__} has no text while the kernel is built: print its shape or dtype")
        return text(self)

    kind.__repr__ = kind.__str__ = __repr__


def _load(asked: dict[str, Any], namespace: dict[str, Any]) -> Any:
    try:
        exec(compile_draft(asked["source"], FILE, frozenset(asked["attributes"])), namespace)
    except MemoryError:
        raise  # for the sandbox to report: there may be no memory left to say so here
    except BaseException as error:  # a draft may raise anything, SystemExit too
        return _error(error, "load")
    entry = asked["entry"]
    found = namespace.get(entry)
    if not callable(found):
        return [
            "entry",
            "no_entry",
            f"the source defines no function {entry}",
            f"define @nki.jit def {entry}(...)",
            None,
        ]
    return found


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if name.split(".")[0] == "nki" or name in ALLOWED:
        return builtins.__import__(name, globals, locals, fromlist, level)
    raise ImportError(f"a kernel imports nki, {', '.join(ALLOWED)}; not {name}")


def _record(kernel: Any, case: Any, asked: dict[str, Any]) -> dict[str, Any]:
    arguments = tuple(TensorType(tuple(shape), dtype) for shape, dtype in case)
    refusals: list[NkiValidationError] = []
    NkiValidationError.made = refusals
    try:
        trace, _ = record(kernel, arguments, target=asked["target"], sdk=asked["sdk"], lnc=asked["lnc"])
        if not refusals:
            return {"trace": wire.encode(trace)}
        what = f"the draft swallowed a refusal: {_words(refusals[0])}"
        return {"error": ["state", "exception_handling", what, "test the shape or dtype before the call", None]}
    except MemoryError:
        raise
    except BaseException as error:  # whatever a draft raises is its verdict, not our failure
        return {"error": _error(error, "raised")}
    finally:
        NkiValidationError.made = None


def _error(error: BaseException, kind: str) -> list[Any]:
    line = _line(error)
    if isinstance(error, LegalityError):
        return ["legality", error.rule, _words(error.what), _words(error.fix), error.line or line]
    if isinstance(error, UnsupportedInstruction):
        return ["unsupported", "unsupported_instruction", _words(error.what), "", error.line or line]
    if isinstance(error, ForeignAttribute):
        return ["access", "attribute", _words(error), "use documented attributes, or objects of your own classes", line]
    return [kind, type(error).__name__, _words(f"{type(error).__name__}: {error}"), "", line]


def _words(message: object) -> str:
    """A message without addresses of objects, which would make the same failure differ from process to process, and
    without what is no text outside this process."""
    return _ADDRESS.sub("", str(message))[:_TEXT].encode(errors="backslashreplace").decode()


def _line(error: BaseException) -> int | None:
    """The innermost line of the draft in a traceback."""
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while isinstance(trace, TracebackType):
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
