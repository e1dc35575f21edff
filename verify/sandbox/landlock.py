"""Landlock: from here on this process can open, list, make or run nothing by path (Linux 5.13 and later).

No path is allowed back in. What the recorder needs was imported before, so an empty allow-list is both the strictest
and the simplest one.
"""

import ctypes
import os

from nkismith.verify.sandbox.syscalls import syscall

_CREATE_RULESET_VERSION = 1
# linux/landlock.h: file rights known to each ABI version (the lowest n bits), TCP bind and connect, scopes.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_SINCE, _NET_RIGHTS = 4, 0b11
_SCOPE_SINCE, _SCOPES = 6, 0b11  # abstract unix sockets, signals


def abi() -> int:
    """Version of the kernel's Landlock interface. OSError where there is none or it is switched off."""
    return syscall("landlock_create_ruleset", 0, 0, _CREATE_RULESET_VERSION)


def close_file_system() -> None:
    """Restrict this thread and its children for good. Needs no_new_privileges. OSError if the kernel refuses."""
    version = abi()
    files = (1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1
    handled = [files]
    if version >= _NET_SINCE:
        handled.append(_NET_RIGHTS)
    if version >= _SCOPE_SINCE:
        handled.append(_SCOPES)
    attributes = (ctypes.c_uint64 * len(handled))(*handled)
    ruleset = syscall("landlock_create_ruleset", ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    try:
        syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
