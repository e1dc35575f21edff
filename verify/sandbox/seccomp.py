"""The system call filter: computing, memory, the clock, writing to what is already open, ending. Nothing else.

Default-deny, so a call nobody thought of (or one that a later kernel adds) is refused with EPERM. There is no way to
get a new descriptor, and memory can never become executable, so no library can be loaded and no code injected.
"""

import ctypes
import errno
import os
import struct

from nkismith.verify.sandbox.syscalls import AUDIT_ARCH, PR_SET_SECCOMP, number, prctl

_ALLOWED = (
    *("read", "write", "close", "munmap", "brk", "mremap", "madvise"),
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall"),
    *("futex", "rseq", "sched_yield", "getpid", "gettid", "getrusage", "getrandom", "clock_gettime", "gettimeofday"),
    *("exit", "exit_group"),
)
_NOT_EXECUTABLE = ("mmap", "mprotect")  # allowed when argument 2, the protection, lacks PROT_EXEC
_PROT_EXEC = 0x4

_MODE_FILTER = 2
_KILL_PROCESS, _ERRNO, _ALLOW = 0x8000_0000, 0x0005_0000, 0x7FFF_0000  # linux/seccomp.h
_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # linux/bpf_common.h, 32-bit words
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _low_word_of_argument(index: int) -> int:
    return _AT_ARGUMENTS + 8 * index  # both machines are little-endian


def program(own_pid: int) -> bytes:
    """The filter as BPF. OSError(ENOSYS) on a machine whose system call numbers are not known."""
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    allow = _step(_RETURN, _ALLOW)
    if AUDIT_ARCH is None:
        number("read")  # raises, naming the machine
    steps = [
        _step(_LOAD, _AT_ARCH),
        _step(_JUMP_EQUAL, AUDIT_ARCH or 0, 1, 0),
        _step(_RETURN, _KILL_PROCESS),  # a call through another machine's numbers (i386 on x86_64)
        _step(_LOAD, _AT_NUMBER),
    ]
    for name in _ALLOWED:
        steps += [_step(_JUMP_EQUAL, number(name), 0, 1), allow]
    for name in _NOT_EXECUTABLE:
        steps += [_step(_JUMP_EQUAL, number(name), 0, 4), _step(_LOAD, _low_word_of_argument(2))]
        steps += [_step(_JUMP_ANY_BIT, _PROT_EXEC, 0, 1), refuse, allow]
    # abort() signals its own process; nobody else's.
    steps += [_step(_JUMP_EQUAL, number("tgkill"), 0, 4), _step(_LOAD, _low_word_of_argument(0))]
    steps += [_step(_JUMP_EQUAL, own_pid, 0, 1), allow, refuse]
    steps += [refuse]
    return b"".join(steps)


def close_system_calls() -> None:
    """Put the filter on this thread for good. Needs no_new_privileges. OSError if the kernel refuses."""
    code = program(os.getpid())
    prctl(PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_Program(len(code) // 8, code)))
