"""What a child may use, and the rlimits that hold it to that."""

import resource
from dataclasses import dataclass

# A reply needs no descriptor but the one it has, no file and no process: everything else is zero.
_NOTHING = ("RLIMIT_FSIZE", "RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_MEMLOCK")


@dataclass(frozen=True, slots=True)
class Limits:
    """Budget of one child."""

    wall_seconds: float = 90.0  # from the lock to the end of the reply; a busy machine makes it much more than CPU time
    cpu_seconds: int = 20  # of the worker, start-up included
    memory_bytes: int = 2 << 30  # address space
    output_bytes: int = 64 << 20  # of the reply
    startup_seconds: float = 60.0  # interpreter and imports; only a sick machine needs more than one second

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"Limits.{name} must be positive, got {getattr(self, name)!r}")


def apply(limits: Limits) -> None:
    """Set the rlimits of this process. OSError naming those that did not take (macOS refuses some)."""
    wanted = {"RLIMIT_CPU": (limits.cpu_seconds, limits.cpu_seconds + 1)}  # soft: SIGXCPU; one second later SIGKILL
    wanted["RLIMIT_AS"] = (limits.memory_bytes, limits.memory_bytes)
    wanted |= dict.fromkeys(_NOTHING, (0, 0))
    failed = []
    for name, (soft, hard) in wanted.items():
        try:
            kind = getattr(resource, name)
            ceiling = resource.getrlimit(kind)[1]
            if ceiling != resource.RLIM_INFINITY:  # never above what we were given
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            resource.setrlimit(kind, (soft, hard))
        except (AttributeError, OSError, ValueError):
            failed.append(name)
    if failed:
        raise OSError(f"not limited here: {', '.join(failed)}")
