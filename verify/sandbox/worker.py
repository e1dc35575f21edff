"""The one process that runs untrusted code: import what is needed, lock for good, then read the request and answer."""

import contextlib
import fcntl
import importlib
import os
import resource
import signal
from typing import Any, NoReturn

from nkismith.verify.sandbox import landlock, limits, seccomp, syscalls
from nkismith.verify.sandbox.frames import ERROR, REPLY, report, write_frame
from nkismith.verify.sandbox.isolation import Level, Mechanism, level_of

OUT_OF_MEMORY = 97  # exit status when there is no memory left to say so
_REPLY_FD = 3
_NOBODY = 65534
_ERROR_TEXT = 4096


def main(config: dict[str, Any], have: set[Mechanism]) -> NoReturn:
    """Import, lock, run `entry.main(request)`, write one frame, exit. `have` is what the warden reached."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for name in config["preload"]:
        importlib.import_module(name)
    entry = importlib.import_module(config["entry"])
    request = _read_request()
    control = _keep_only_the_reply_pipe(config["reply_fd"], config["control_fd"])
    have |= _lock(limits.Limits(**config["limits"]), frozenset(Mechanism(m) for m in config["mechanisms"]))
    level = level_of(have)
    report(control, locked=sorted(have))
    os.close(control)
    if list(Level).index(level) > list(Level).index(Level(config["at_least"])):
        os._exit(0)
    _answer(entry, request)


def _read_request() -> bytes:
    with os.fdopen(0, "rb", closefd=False) as stdin:
        return stdin.read()


def _keep_only_the_reply_pipe(reply: int, control: int) -> int:
    """Reply pipe to 3, /dev/null to 0, 1 and 2, all else closed. Returns the control pipe's new number."""
    control = fcntl.fcntl(control, fcntl.F_DUPFD, 10)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.dup2(reply, _REPLY_FD)  # after the others: `null` itself may be 3
    os.closerange(_REPLY_FD + 1, control)
    os.closerange(control + 1, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16))
    return control


def _lock(budget: limits.Limits, allowed: frozenset[Mechanism]) -> set[Mechanism]:
    """Give up everything, in the order in which each step still permits the next. Returns what took hold."""
    steps = (
        (Mechanism.UNPRIVILEGED_USER, _become_nobody),
        (Mechanism.NO_CAPABILITIES, syscalls.drop_capabilities),
        (Mechanism.NO_NEW_PRIVILEGES, lambda: syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)),
        (Mechanism.LANDLOCK, landlock.close_file_system),
        (Mechanism.RLIMITS, lambda: limits.apply(budget)),
        (Mechanism.SECCOMP, seccomp.close_system_calls),
    )
    have = set()
    for mechanism, step in steps:
        if mechanism in allowed:
            with contextlib.suppress(OSError):
                step()
                have.add(mechanism)
    return have


def _become_nobody() -> None:
    if os.geteuid() != 0:
        raise PermissionError("not root, so there is nothing to give up")
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    with contextlib.suppress(OSError):
        syscalls.die_with_parent(signal.SIGKILL)  # again: the change of user cleared it


def _answer(entry: Any, request: bytes) -> NoReturn:
    try:
        kind, payload = REPLY, entry.main(request)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are the candidate's doing too
        kind, payload = ERROR, f"{type(error).__name__}: {error}"[:_ERROR_TEXT].encode(errors="replace")
    try:
        write_frame(_REPLY_FD, kind, payload)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    os._exit(0)
