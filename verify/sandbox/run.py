"""The judge's side: start a child, read what it says within its budget, see it dead, say how it ended."""

import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from nkismith.verify.sandbox import boot, worker
from nkismith.verify.sandbox.frames import ERROR, frame_size, read_frame, read_reports
from nkismith.verify.sandbox.isolation import Isolation, Level, Mechanism, allowed_at
from nkismith.verify.sandbox.limits import Limits

RECORDER = "nkismith.verify.simulator.child"
_HERE = Path(boot.__file__).parent
# Top-level packages that exist in the child. Ours are empty there, but for the simulator and this package.
_PACKAGES = ("numpy", "ml_dtypes", "msgpack", "nkismith.verify.simulator")
_CONTROL_BYTES = 1 << 16
_GRACE_SECONDS = 5.0  # for the warden to kill what it guards, before it is killed itself
_CHUNK = 1 << 16
_DETAIL = 500  # characters


class Exit(StrEnum):
    """How a child ended."""

    REPLIED = "replied"
    TIMEOUT = "timeout"  # wall or CPU time
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    KILLED = "killed"  # by a signal that was not ours: the kernel's out-of-memory killer, or its own doing
    CRASHED = "crashed"  # an exception, a fatal signal, or an end without a reply
    GARBLED = "garbled"  # something else than exactly one whole frame on the reply pipe


@dataclass(frozen=True, slots=True)
class ChildResult:
    """What came back. `reply` is set if and only if `exit` is REPLIED, and is not to be trusted."""

    exit: Exit
    reply: bytes | None
    isolation: Isolation
    seconds: float  # wall time, start-up included
    detail: str  # one line for people; printable characters only, part of it is the child's own words


class SandboxError(RuntimeError):
    """A child could not be started or locked. Our failure, not the candidate's."""


class IsolationUnavailable(SandboxError):
    """This machine does not allow the isolation that was asked for."""


def run(
    request: bytes,
    *,
    entry: str = RECORDER,
    limits: Limits | None = None,
    level: Level | Literal["auto"] = "auto",
    hash_seed: int = 0,
    cwd: str | Path = "/",
    preload: Iterable[str] = (),
    modules: Mapping[str, str | Path] | None = None,
    mechanisms: Iterable[Mechanism] = tuple(Mechanism),
) -> ChildResult:
    """Import `entry` in a fresh, locked interpreter, call its `main(request) -> bytes`, return the reply.

    Args:
        request: handed to `main` as it is.
        entry: module with `main`, imported before the lock. It must import at module level all that it will ever need:
            after the lock no file opens.
        limits: time, memory and output budget; `Limits()` if None.
        level: "auto" takes the best that the machine allows and reports it; a Level tries exactly that one.
        hash_seed: PYTHONHASHSEED of the child, 0 to 4294967295.
        cwd: its working directory.
        preload: more modules to import before the lock.
        modules: more modules that exist in the child: dotted name -> file, or folder for a package without code. A name
            listed here replaces ours, so the same code can be seen under another path.
        mechanisms: what may be tried at most; leaving some out shows what happens on a lesser machine.

    Raises:
        IsolationUnavailable: `level` is not "auto" and was not reached. Nothing untrusted ran.
        SandboxError: the child did not get as far as the lock: `entry` does not import, the interpreter does not start,
            there is no room for its files. Or what ended it is out of a locked child's reach: somebody killed its
            warden, or the machine was too busy to give it its CPU time.
    """
    limits = limits or Limits()
    exact = None if level == "auto" else Level(level)
    wanted = allowed_at(exact or Level.STRONG) & frozenset(map(Mechanism, mechanisms))
    with _our_failure(), ExitStack() as stack:
        reply_read, reply_write = _pipe(stack)
        control_read, control_write = _pipe(stack)
        # A file, not a pipe: a child that never reads cannot block us, and nothing is left to write to.
        request_file = stack.enter_context(tempfile.TemporaryFile())
        request_file.write(request)
        request_file.seek(0)
        config = {
            "entry": entry,
            "preload": list(preload),
            "modules": _module_places(modules or {}),
            "mechanisms": sorted(wanted),
            "at_least": exact or Level.WEAK,
            "limits": asdict(limits),
            "reply_fd": reply_write,
            "control_fd": control_write,
            "judge_pid": os.getpid(),
        }
        started = time.monotonic()
        process = subprocess.Popen(
            # -I would also ignore PYTHONHASHSEED; with the environment below, -s -P -S are the rest of it.
            [_interpreter(), "-s", "-P", "-S", "-B", boot.__file__, json.dumps(config)],
            stdin=request_file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=_environment(hash_seed),
            pass_fds=(reply_write, control_write),
            start_new_session=True,  # Ctrl-C reaches us first, and we end it in order
        )
        stack.callback(_end, process)
        os.close(reply_write)
        os.close(control_write)
        heard = _listen(process, reply_read, control_read, limits)
        return _result(heard, exact, limits, time.monotonic() - started)


@contextmanager
def _our_failure() -> Iterator[None]:
    """What the system refuses while a child is set up or heard (no space, no process, no descriptor) is no draft's."""
    try:
        yield
    except OSError as error:
        raise SandboxError(f"no child could be run: {error}") from error


def _interpreter() -> str:
    if not sys.executable:
        raise SandboxError("sys.executable is empty: an embedded Python cannot start a child interpreter")
    return sys.executable


def _environment(hash_seed: int) -> dict[str, str]:
    # One thread: OpenBLAS would start a pool on import, and reserve address space for each.
    return {"PYTHONHASHSEED": str(hash_seed), "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _pipe(stack: ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    stack.callback(os.close, read)
    return read, write


def _module_places(extra: Mapping[str, str | Path]) -> dict[str, str]:
    places = {"nkismith": "", "nkismith.verify": "", "nkismith.verify.sandbox": str(_HERE)}
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise SandboxError(f"the child needs {name}, which is not installed here")
        folders = list(spec.submodule_search_locations or [])
        places[name] = spec.origin or folders[0]
    return places | {name: str(place) for name, place in extra.items()}


def _end(process: subprocess.Popen[bytes]) -> None:
    """See the warden and all that it guards dead. SIGTERM asks it to kill them; if it cannot, it goes the hard way."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()


@dataclass(frozen=True, slots=True)
class _Heard:
    """All that a child and its warden said."""

    reply: bytes
    reports: dict[str, Any]
    stderr: str
    stopped_for: Exit | None  # the budget that was spent, if that is why it ended


def _listen(process: subprocess.Popen[bytes], reply: int, control: int, limits: Limits) -> _Heard:
    """Read until all pipes are closed or a budget is spent, and see the child dead."""
    assert process.stderr is not None
    stderr = process.stderr.fileno()
    received = {reply: bytearray(), control: bytearray(), stderr: bytearray()}
    caps = {reply: frame_size(limits.output_bytes), control: _CONTROL_BYTES, stderr: _CONTROL_BYTES}
    stopped_for = None
    locked = False
    deadline = time.monotonic() + limits.startup_seconds
    with selectors.DefaultSelector() as selector:
        for descriptor in received:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and not stopped_for:
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready and time.monotonic() >= deadline:
                stopped_for = Exit.TIMEOUT
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fd)
                received[key.fd] += chunk
                if len(received[key.fd]) > caps[key.fd]:
                    stopped_for = Exit.OUTPUT_LIMIT
            if not locked and received[control]:
                locked = True
                deadline = time.monotonic() + limits.wall_seconds
    _end(process)
    reports = read_reports(bytes(received[control]))
    return _Heard(bytes(received[reply]), reports, received[stderr].decode(errors="replace"), stopped_for)


def _result(heard: _Heard, exact: Level | None, limits: Limits, seconds: float) -> ChildResult:
    if "locked" not in heard.reports:
        why = f"nothing for {limits.startup_seconds:g} s" if heard.stopped_for else "it ended"
        raise SandboxError(f"the child did not get as far as its lock: {why}\n{heard.stderr.rstrip()}")
    isolation = Isolation.of(Mechanism(name) for name in heard.reports["locked"])
    if exact and isolation.level is not exact:
        raise IsolationUnavailable(
            f"isolation {exact} was asked for, this machine allows {isolation}. "
            "Take what there is with level='auto', or a kernel or container that permits user namespaces and Landlock."
        )
    if isolation.level is not Level.WEAK:
        _require_own_doing(heard, limits)
    exit_, reply, detail = _verdict(heard, limits)
    return ChildResult(exit_, reply, isolation, seconds, _printable(detail))


def _require_own_doing(heard: _Heard, limits: Limits) -> None:
    """Raise SandboxError for ends that a child cannot bring about once its system calls are filtered: it can neither
    sleep nor signal anybody."""
    if heard.stopped_for is Exit.TIMEOUT and limits.wall_seconds >= 2 * limits.cpu_seconds:
        raise SandboxError(
            f"the child ran for {limits.wall_seconds:g} s without getting {limits.cpu_seconds} s of CPU time: this "
            "machine is too busy to judge; try again when it is not"
        )
    if heard.stopped_for is None and "ended" not in heard.reports:
        raise SandboxError("the child's warden was killed: by the system's out-of-memory killer, or by hand")


def _verdict(heard: _Heard, limits: Limits) -> tuple[Exit, bytes | None, str]:
    status: int | None = heard.reports.get("ended")
    cpu_seconds: float = heard.reports.get("cpu_seconds", 0.0)
    if heard.stopped_for is Exit.TIMEOUT:
        return Exit.TIMEOUT, None, f"no answer after {limits.wall_seconds:g} s"
    if heard.stopped_for is Exit.OUTPUT_LIMIT:
        return Exit.OUTPUT_LIMIT, None, f"the reply is longer than {limits.output_bytes:,} bytes"
    if status is None:
        return Exit.KILLED, None, "the child's warden was killed"
    if status == worker.OUT_OF_MEMORY:
        return Exit.MEMORY, None, f"more than {limits.memory_bytes:,} bytes of address space"
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        if -status == signal.SIGXCPU or cpu_seconds >= limits.cpu_seconds:
            return Exit.TIMEOUT, None, f"more than {limits.cpu_seconds} s of CPU time"
        fatal = -status in {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
        return Exit.CRASHED if fatal else Exit.KILLED, None, f"the child was ended by {name}"
    if not heard.reply:
        return Exit.CRASHED, None, f"the child exited with status {status} and without a reply"
    frame = read_frame(heard.reply)
    if frame is None or status != 0:
        return Exit.GARBLED, None, f"{len(heard.reply):,} bytes on the reply pipe that are not one whole frame"
    kind, payload = frame
    if kind == ERROR:
        return Exit.CRASHED, None, payload.decode(errors="replace")
    return Exit.REPLIED, payload, ""


def _printable(text: str) -> str:
    """One line without control characters: part of it was chosen by the candidate and it goes to a terminal."""
    return "".join(c if c.isprintable() else " " for c in text[:_DETAIL])
