"""Joining the other ranks of a run, and saying clearly why one stopped.

A rank that stops closes its connections, which ends the collectives of the others at once. What it
stopped for it leaves in the store all ranks share, so that every rank can name the cause and not only
its own symptom.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist

from nkismith.pipeline.errors import RankFailed

FAILURE = "nkismith.failure"
"""Key of the store under which the first rank to fail leaves its reason."""

TIMEOUT = timedelta(minutes=10)
"""How long a rank waits for one that is alive and silent; reading weights is the longest anyone takes."""


def world() -> tuple[int, int]:
    """This process's rank and the number of ranks, as torchrun announces them; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@contextmanager
def joined(timeout: timedelta = TIMEOUT) -> Iterator[None]:
    """Be a member of the process group of all ranks.

    An error inside is left in the store for the others before it goes on. SIGTERM, which torchrun sends to
    the survivors when a rank dies, becomes RankFailed.
    """
    rank, ranks = world()
    with rank_failures("joining the other ranks"):
        store, _, _ = next(dist.rendezvous("env://", rank, ranks, timeout=timeout))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)

    def terminated(*_: object) -> None:
        raise RankFailed(f"rank {rank} was told to stop, because another rank failed{_cause(store)}")

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    except RankFailed as error:
        raise RankFailed(f"{error}{_cause(store)}") from error
    except Exception as error:
        _leave(store, f"rank {rank}: {error}")
        raise
    finally:
        dist.destroy_process_group()


@contextmanager
def rank_failures(doing: str) -> Iterator[None]:
    """Turn the errors that collectives raise when a rank is gone into RankFailed."""
    try:
        yield
    except RuntimeError as error:
        # Gloo begins with its own source line in brackets, and adds general advice after the first sentence.
        reason = re.sub(r"^\[\S+\] ", "", str(error).strip().split("\n")[0]).split(". ")[0]
        raise RankFailed(f"{doing} failed, because another rank stopped or does not answer ({reason})") from error


def _leave(store: dist.Store, reason: str) -> None:
    with suppress(RuntimeError):  # the store may have gone with the rank that kept it
        if not store.check([FAILURE]):
            store.set(FAILURE, reason)


def _cause(store: dist.Store) -> str:
    with suppress(RuntimeError):
        if store.check([FAILURE]):
            return f": {store.get(FAILURE).decode()}"
    return ""
