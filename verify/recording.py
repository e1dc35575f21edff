"""Record a draft's traces in the sandbox: the judge's side of the recording child.

Two fresh children record every case, with different hash seeds, working directories and paths of the simulator, one in
the order of the cases and one backwards; what differs between them depends on its surroundings, or on what was built
before, and is refused (`nondeterministic_trace`). Nothing the child says
is believed before `wire.decode` has checked it.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from nkismith.kernels.spec import Bound
from nkismith.verify import sandbox
from nkismith.verify.failure import Failure
from nkismith.verify.lint.names import BUILTINS, NKI_ATTRIBUTES, PYTHON_ATTRIBUTES
from nkismith.verify.reasons import Reason
from nkismith.verify.simulator import wire
from nkismith.verify.simulator.dtypes import named
from nkismith.verify.simulator.errors import TraceError
from nkismith.verify.simulator.trace import Trace

SIMULATOR = Path(wire.__file__).parent
_EXITS = {
    sandbox.Exit.TIMEOUT: Reason.TIMEOUT,
    sandbox.Exit.MEMORY: Reason.MEMORY,
    sandbox.Exit.OUTPUT_LIMIT: Reason.OUTPUT_LIMIT,
    sandbox.Exit.KILLED: Reason.CRASHED,
    sandbox.Exit.CRASHED: Reason.CRASHED,
    sandbox.Exit.GARBLED: Reason.FORGED_TRACE,
}
_FIXES = {
    Reason.TIMEOUT: "record fewer instructions: roll long Python loops into nl.fori_loop",
    Reason.MEMORY: "keep no large Python objects while building",
    Reason.OUTPUT_LIMIT: "roll long Python loops into nl.fori_loop",
}


@dataclass(frozen=True, slots=True)
class Recording:
    """Traces in the order of the cases, and the isolation under which they were recorded."""

    traces: tuple[Trace, ...]
    isolation: sandbox.Isolation


@dataclass(frozen=True, slots=True)
class Request:
    """What a child is asked to record: a source, its entry point, and one list of tensor types a case."""

    source: str
    entry: str
    sdk: str
    target: str
    lnc: int

    def pack(self, bounds: Sequence[Bound]) -> bytes:
        """The request as the child reads it."""
        cases = [[[list(t.shape), t.dtype] for t in bound.inputs.values()] for bound in bounds]
        return msgpack.packb(
            {
                "source": self.source,
                "entry": self.entry,
                "builtins": sorted(BUILTINS),
                "attributes": sorted(NKI_ATTRIBUTES | PYTHON_ATTRIBUTES),
                "sdk": self.sdk,
                "target": self.target,
                "lnc": self.lnc,
                "cases": cases,
            }
        )


def record(request: Request, bounds: Sequence[Bound], *, limits: sandbox.Limits | None = None) -> Recording:
    """Record `bounds` twice and compare. Raises Failure with a record-stage reason; SandboxError if it is our fault."""
    with _elsewhere() as elsewhere, ThreadPoolExecutor(2) as pool:
        moved = Path(elsewhere) / secrets.token_hex(8)
        moved.symlink_to(SIMULATOR, target_is_directory=True)
        runs = [
            pool.submit(sandbox.run, request.pack(bounds), limits=limits, hash_seed=1, cwd="/"),
            pool.submit(
                sandbox.run,
                request.pack(bounds[::-1]),
                limits=limits,
                hash_seed=secrets.randbelow(1 << 32),
                cwd=elsewhere,
                modules={"nkismith.verify.simulator": moved},
            ),
        ]
        first, second = (run.result() for run in runs)
    items, backwards = _items(first, len(bounds)), _items(second, len(bounds))
    if items != backwards[::-1]:
        raise Failure(
            Reason.NONDETERMINISTIC_TRACE,
            "two recordings of the same source, in different surroundings and in another order of cases, differ",
            fix="derive nothing from hashes, ids, paths, time, the environment, or earlier builds",
        )
    traces = tuple(_trace(item, request, bound) for item, bound in zip(items, bounds, strict=True))
    return Recording(traces, first.isolation)


def _elsewhere() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory()
    except OSError as error:
        raise sandbox.SandboxError(f"no temporary folder: {error}") from error


def _items(result: sandbox.ChildResult, count: int) -> list[Any]:
    """One item a case, not looked into yet."""
    if result.exit is not sandbox.Exit.REPLIED or result.reply is None:
        reason = _EXITS[result.exit]
        raise Failure(reason, f"recording ended with {result.exit}: {result.detail}", fix=_FIXES.get(reason, ""))
    try:
        items = msgpack.unpackb(result.reply)
    except Exception as error:  # msgpack raises ValueError, TypeError and kinds of its own for malformed bytes
        raise Failure(Reason.FORGED_TRACE, f"the recording is not a reply: {error}") from error
    if not isinstance(items, list) or len(items) != count or not all(map(_is_item, items)):
        raise Failure(Reason.FORGED_TRACE, "the recording child did not answer for every case")
    return items


def _is_item(item: object) -> bool:
    """A trace in bytes, or an error as `_failure` takes it."""
    if not isinstance(item, dict) or len(item) != 1:
        return False
    trace, error = item.get("trace"), item.get("error")
    return isinstance(trace, bytes) or (
        isinstance(error, list)
        and len(error) == 5
        and all(isinstance(text, str) for text in error[:4])
        and isinstance(error[4], int | None)
    )


def _trace(item: Any, request: Request, bound: Bound) -> Trace:
    if "error" in item:
        raise _failure(*item["error"])
    try:
        trace = wire.decode(item["trace"])
    except TraceError as error:
        raise Failure(Reason.FORGED_TRACE, f"the recording is not a trace: {error}") from error
    if (trace.sdk, trace.target, trace.lnc) != (request.sdk, request.target, request.lnc):
        raise Failure(Reason.FORGED_TRACE, "the trace is for another SDK, target or LNC than was asked for")
    given = [(b.kind, b.shape, b.dtype) for b in (trace.buffers[i] for i in trace.inputs)]
    if given != [("input", t.shape or (1,), named(t.dtype)) for t in bound.inputs.values()]:
        raise Failure(Reason.FORGED_TRACE, "the trace has other inputs than were asked for")
    return trace


def _failure(kind: str, rule: str, what: str, fix: str, line: int | None) -> Failure:
    reasons = {
        "legality": Reason.ILLEGAL,
        "unsupported": Reason.UNSUPPORTED_INSTRUCTION,
        "entry": Reason.NO_ENTRY,
        "load": Reason.RAISED,
        "raised": Reason.RAISED,
        "access": Reason.FORBIDDEN_ACCESS,
        "state": Reason.ENVIRONMENT_DEPENDENT,
    }
    if kind not in reasons:
        return Failure(Reason.FORGED_TRACE, f"unknown kind of error {kind!r:.40}")
    return Failure(reasons[kind], what, fix=fix, line=line, rule=rule)
