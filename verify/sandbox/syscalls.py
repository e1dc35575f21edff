"""System calls that Python has no function for, through ctypes. Raises OSError as `os` would."""

import ctypes
import os
import platform
import signal
import sys

# Linux uapi headers: linux/prctl.h, linux/sched.h, linux/capability.h. The same on every architecture.
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
)
_LINUX_CAPABILITY_VERSION_3 = 0x2008_0522

# Numbers of the calls made or filtered here (asm/unistd_64.h; asm-generic/unistd.h). A machine that is not listed has
# neither Landlock nor a filter from us, and the level says so.
_NUMBERS = {
    #                 x86_64 aarch64
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "capset": (126, 91),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "tgkill": (234, 131),
    "getrandom": (318, 278),
    "rseq": (334, 293),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
}
_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}  # column above, AUDIT_ARCH_* of linux/audit.h

_machine = _MACHINES.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 2**32 else None
AUDIT_ARCH: int | None = _machine[1] if _machine else None
_libc = ctypes.CDLL(None, use_errno=True)


def number(name: str) -> int:
    """Number of system call `name` here. OSError(ENOSYS) on a machine whose numbers are not listed."""
    if _machine is None:
        raise OSError(38, f"system call numbers of {sys.platform} {platform.machine()} are not known")
    return _NUMBERS[name][_machine[0]]


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(name: str, *arguments: object) -> int:
    """Call `name`; integers are passed as C longs, ctypes objects as they are."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number(name)), *converted), name)


def prctl(option: int, *arguments: object) -> int:
    """prctl(2); missing arguments are zero. OSError(ENOSYS) where there is none."""
    if not hasattr(_libc, "prctl"):
        raise OSError(38, f"{sys.platform} has no prctl")
    padded = [*arguments, 0, 0, 0, 0][:4]
    converted = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in padded]
    return _checked(_libc.prctl(ctypes.c_int(option), *converted), "prctl")


def unshare(flags: int) -> None:
    """unshare(2). OSError(ENOSYS) where there is none."""
    if not hasattr(_libc, "unshare"):
        raise OSError(38, f"{sys.platform} has no unshare")
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def die_with_parent(sent: signal.Signals) -> None:
    """Have the kernel send this process `sent` when its parent ends. Changing credentials clears it: ask again."""
    prctl(PR_SET_PDEATHSIG, int(sent))


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets of this thread."""
    header = (ctypes.c_uint32 * 2)(_LINUX_CAPABILITY_VERSION_3, 0)
    syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
