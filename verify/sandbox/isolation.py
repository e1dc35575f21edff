"""The words for how isolated a child was: mechanisms it really had, and the level they add up to."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Mechanism(StrEnum):
    """One thing the kernel enforces on a child. Reported only after the call that asks for it succeeded."""

    USER_NAMESPACE = "user_namespace"  # no identity on the host, no capability over it
    PID_NAMESPACE = "pid_namespace"  # cannot name other processes; all descendants die with its init
    NETWORK_NAMESPACE = "network_namespace"  # no interface, not even loopback, no abstract sockets
    IPC_NAMESPACE = "ipc_namespace"
    UTS_NAMESPACE = "uts_namespace"
    LANDLOCK = "landlock"  # no path can be opened, listed, made or run
    SECCOMP = "seccomp"  # only the system calls that computing needs
    UNPRIVILEGED_USER = "unprivileged_user"  # root became nobody (only where there is no user namespace)
    NO_CAPABILITIES = "no_capabilities"
    NO_NEW_PRIVILEGES = "no_new_privileges"
    RLIMITS = "rlimits"  # CPU, memory, no file growth, no new descriptors, processes or core dumps


class Level(StrEnum):
    """What the mechanisms add up to, best first."""

    STRONG = "strong"  # own user, pid and network namespaces, Landlock and the system call filter
    SECCOMP = "seccomp"  # the system call filter alone keeps it from files, sockets and processes
    WEAK = "weak"  # limits only: trusts that the candidate does not try


NAMESPACES = frozenset({Mechanism.USER_NAMESPACE, Mechanism.PID_NAMESPACE, Mechanism.NETWORK_NAMESPACE})
_NEEDS = {
    Level.STRONG: NAMESPACES | {Mechanism.LANDLOCK, Mechanism.SECCOMP},
    Level.SECCOMP: frozenset({Mechanism.SECCOMP}),
    Level.WEAK: frozenset(),
}
_OWN_NAMESPACES = NAMESPACES | {Mechanism.IPC_NAMESPACE, Mechanism.UTS_NAMESPACE}


def level_of(mechanisms: Iterable[Mechanism]) -> Level:
    """The best level whose needs are all among `mechanisms`."""
    have = frozenset(mechanisms)
    return next(level for level in Level if have >= _NEEDS[level])


def allowed_at(level: Level) -> frozenset[Mechanism]:
    """The mechanisms a child may try when asked for exactly `level`: STRONG tries all, WEAK only limits."""
    if level is Level.STRONG:
        return frozenset(Mechanism)
    without_namespaces = frozenset(Mechanism) - _OWN_NAMESPACES
    if level is Level.SECCOMP:
        return without_namespaces
    return without_namespaces - {Mechanism.SECCOMP, Mechanism.LANDLOCK}


@dataclass(frozen=True, slots=True)
class Isolation:
    """How isolated one child was."""

    level: Level
    mechanisms: tuple[Mechanism, ...]

    @classmethod
    def of(cls, mechanisms: Iterable[Mechanism]) -> "Isolation":
        have = frozenset(mechanisms)
        return cls(level_of(have), tuple(m for m in Mechanism if m in have))

    def __str__(self) -> str:
        return f"{self.level} ({', '.join(self.mechanisms) or 'nothing'})"
