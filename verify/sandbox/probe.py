"""An entry that tries what a child must not be able to do and says what it got away with."""

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

_ATTEMPTS: dict[str, Callable[[], object]] = {
    "read a file": lambda: os.open(__file__, os.O_RDONLY),
    "list a directory": lambda: list(Path("/").iterdir()),
    "write a file": lambda: os.open(Path("/var/tmp") / f"nkismith-probe-{os.getpid()}", os.O_WRONLY | os.O_CREAT),
    "make a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "start a process": lambda: os.fork() or os._exit(0),
    "signal its parent's group": lambda: os.kill(os.getppid(), 0),
}


def main(request: bytes) -> bytes:
    """JSON list of the attempts that the machine did not refuse. `request` is not used."""
    possible = []
    for name, attempt in _ATTEMPTS.items():
        with contextlib.suppress(OSError):
            attempt()
            possible.append(name)
    return json.dumps(possible).encode()
