"""The trusted processes around a worker: enter new namespaces, start it, see that nothing of it outlives its end.

    warden (outside the pid namespace, killed softly by the judge's SIGTERM or death)
      └── init (pid 1 of the namespace; when it ends the kernel kills every process in there, also after setsid)
            └── worker

Where the kernel allows no pid namespace the warden is the direct parent and hunts descendants down itself.
"""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from nkismith.verify.sandbox import syscalls, worker
from nkismith.verify.sandbox.frames import report
from nkismith.verify.sandbox.isolation import Mechanism

_FLAGS = {
    Mechanism.USER_NAMESPACE: syscalls.CLONE_NEWUSER,
    Mechanism.PID_NAMESPACE: syscalls.CLONE_NEWPID,
    Mechanism.NETWORK_NAMESPACE: syscalls.CLONE_NEWNET,
    Mechanism.IPC_NAMESPACE: syscalls.CLONE_NEWIPC,
    Mechanism.UTS_NAMESPACE: syscalls.CLONE_NEWUTS,
}


def enter_namespaces(allowed: frozenset[Mechanism]) -> set[Mechanism]:
    """Unshare as many of the `allowed` namespaces as the kernel grants; all at once, since the user namespace is what
    permits the others. No uid is mapped: the worker is nobody in there and stays the caller for the file system."""
    wanted = set(_FLAGS) & allowed
    for attempt in (wanted, wanted - {Mechanism.USER_NAMESPACE}):
        if not attempt:
            continue
        with contextlib.suppress(OSError):
            syscalls.unshare(sum(_FLAGS[m] for m in attempt))
            return attempt
    return set()


def main(config: dict[str, Any]) -> NoReturn:
    """Run the worker described by `config` (see run.py) and end. Never returns, never raises."""
    waited_for = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # an ignored signal would not wake sigwait everywhere
    control = config["control_fd"]
    have = enter_namespaces(frozenset(Mechanism(m) for m in config["mechanisms"]))
    with contextlib.suppress(OSError):
        syscalls.die_with_parent(signal.SIGTERM)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != config["judge_pid"]:  # it died before the line above took hold
        os._exit(1)
    inside = Mechanism.PID_NAMESPACE in have
    child = _fork(lambda: _be_init(config, have) if inside else worker.main(config, have))
    while True:
        caught = signal.sigwait(waited_for)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended or caught is signal.SIGTERM:
            break
    if ended and not inside:
        _report_end(control, status)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _kill_descendants(child)
    os._exit(0)


def _fork(body: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        with contextlib.suppress(OSError):
            syscalls.die_with_parent(signal.SIGKILL)
        body()
    finally:  # whatever happened, two processes must not run on in the same code
        sys.excepthook(*sys.exc_info()) if sys.exc_info()[0] else None
        os._exit(1)


def _be_init(config: dict[str, Any], have: set[Mechanism]) -> NoReturn:
    child = _fork(lambda: worker.main(config, have))
    while True:
        ended, status = os.wait()
        if ended == child:
            _report_end(config["control_fd"], status)
            os._exit(0)


def _report_end(control: int, status: int) -> None:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    report(control, ended=os.waitstatus_to_exitcode(status), cpu_seconds=usage.ru_utime + usage.ru_stime)


def _kill_descendants(first: int) -> None:
    """Kill and reap until there is no child left. Orphans come to us, the subreaper, so new ones show up next round."""
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(first, signal.SIGKILL)
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    with contextlib.suppress(OSError):  # needs Linux with CONFIG_PROC_CHILDREN; the process group is killed anyway
        yield from map(int, Path("/proc/thread-self/children").read_text().split())
