"""Run Python that nobody trusts, and take nothing from it but one capped reply.

    run(request) ──> boot.py (fresh interpreter) ──> warden ──> init ──> worker: import, lock, main(request)
         ^                                              │ new namespaces      │
         └───────── control pipe: what was locked, how it ended               └─> reply pipe: one frame

The worker imports everything it needs, takes the request, and locks itself: from then on it can open no file, make no
socket, start no process and map no code. Only then does untrusted code run. How much of that the machine allowed is the
`Isolation` of the result; it is found out by trying, never assumed.
"""

from nkismith.verify.sandbox.isolation import Isolation, Level, Mechanism
from nkismith.verify.sandbox.levels import LevelReport, levels
from nkismith.verify.sandbox.limits import Limits
from nkismith.verify.sandbox.run import ChildResult, Exit, IsolationUnavailable, SandboxError, run

__all__ = [
    "ChildResult",
    "Exit",
    "Isolation",
    "IsolationUnavailable",
    "Level",
    "LevelReport",
    "Limits",
    "Mechanism",
    "SandboxError",
    "levels",
    "run",
]
