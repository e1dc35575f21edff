"""What runs leave behind, and the only SQL of the project.

One SQLite database a run (`runs/<run>/run.db`: texts by content hash, the ledger of model calls,
attempts with their lineage) plus one index over runs (`index.db`: runs, lessons). Both are in WAL
mode, so that what was committed survives `kill -9`. This module stores and finds; what a call may
cost and what an attempt means is decided in `nkismith.agent`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

Row = dict[str, Any]


class StoreError(Exception):
    """A data folder or run that cannot be used as asked; the message says which and what to do."""


class UnknownRun(StoreError):
    pass


def data_root() -> Path:
    """Folder that holds runs: NKISMITH_DATA, else `results/data` of a checkout, else the user's data folder."""
    if chosen := os.environ.get("NKISMITH_DATA"):
        return Path(chosen).expanduser()
    room = Path(__file__).resolve().parent
    if (room.parent / "pyproject.toml").is_file():
        return room / "data"
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "nkismith"


def content_hash(text: str) -> str:
    """`sha256:<hex>` of the UTF-8 text: the algorithm is part of the name, so that it can change one day."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def write_text(path: Path, text: str) -> Path:
    """Write a whole file or nothing: temporary file in the same folder, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


@dataclass(frozen=True)
class Spent:
    """Money, tokens and replies of a run so far. Calls in flight count at their reserved maximum.

    usd, reserved_usd in dollars; tokens are input plus output; replies are model answers that arrived.
    """

    usd: float
    reserved_usd: float
    tokens: int
    reserved_tokens: int
    in_flight: int
    replies: int

    @property
    def committed_usd(self) -> float:
        return self.usd + self.reserved_usd

    @property
    def committed_tokens(self) -> int:
        return self.tokens + self.reserved_tokens


_RUN_TABLES: dict[str, dict[str, type]] = {
    "run": {"id": str, "op": str, "config": str, "status": str, "ended": str, "accepted": int, "best": int,
            "kernel": str, "message": str, "created_at": float},
    "sessions": {"id": int, "started_at": float, "seen_at": float},
    "texts": {"hash": str, "text": str},
    "calls": {"id": int, "request": str, "sample": int, "attempt": int, "try": int, "provider": str, "model": str,
              "state": str, "reserved_usd": float, "reserved_input_tokens": int, "reserved_output_tokens": int,
              "usd": float, "input_tokens": int, "cache_write_tokens": int, "cache_read_tokens": int,
              "output_tokens": int, "stop_reason": str, "reply": str, "error": str,
              "started_at": float, "ended_at": float},
    "attempts": {"id": int, "sample": int, "attempt": int, "kind": str, "parent": int, "round": int, "prompt": str,
                 "prompt_tokens": int, "call": int, "reply": str, "source": str, "change": str, "stage": str,
                 "reason": str, "verdict": str, "accepted": int, "latency_us": float, "low_us": float,
                 "high_us": float, "floor_us": float, "created_at": float},
}  # fmt: skip
_INDEX_TABLES: dict[str, dict[str, type]] = {
    "runs": {"id": str, "op": str, "status": str, "ended": str, "accepted": int, "provider": str, "model": str,
             "target": str, "usd": float, "attempts": int, "latency_us": float, "floor_us": float,
             "created_at": float, "updated_at": float},
    "lessons": {"id": str, "op": str, "kind": str, "bottleneck": str, "reason": str, "situation": str, "change": str,
                "effect": str, "positive": int, "weight": float, "run": str, "created_at": float},
}  # fmt: skip
_KEYS = {"run": "id", "sessions": "id", "texts": "hash", "calls": "id", "attempts": "id", "runs": "id", "lessons": "id"}


def _open(path: Path, tables: dict[str, dict[str, type]]) -> Database:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Nodes ask several models at once: one connection, serialised by the owner's lock.
        connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
        db = Database(connection)
        db.enable_wal()
        for name, columns in tables.items():
            db.table(name).create(columns, pk=_KEYS[name], if_not_exists=True)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"The data folder cannot be used: {path}: {error}. Set NKISMITH_DATA to a folder you can write to."
        ) from None
    return db


def _inserted(db: Database, table: str, row: Row) -> int:
    """Insert a row and return the number SQLite gave it."""
    return int(db.table(table).insert(row).last_pk)  # type: ignore[arg-type]


class RunStore:
    """One run: its configuration, texts, model calls and attempts. Safe to share between threads."""

    def __init__(self, folder: Path, db: Database):
        self.folder, self._db, self._lock = folder, db, threading.RLock()
        self._session: int | None = None

    @classmethod
    def create(cls, root: Path, run: str, op: str, config: Row) -> RunStore:
        """Start a new run in `root/runs/<run>`."""
        folder = root / "runs" / run
        store = cls(folder, _open(folder / "run.db", _RUN_TABLES))
        row = {"id": run, "op": op, "config": json.dumps(config), "status": "running", "ended": "", "accepted": 0,
               "best": None, "kernel": "", "message": "", "created_at": time.time()}  # fmt: skip
        store._db.table("run").insert(row)
        return store

    @classmethod
    def open(cls, root: Path, run: str) -> RunStore:
        """Open the run named `run`: its name, any unambiguous beginning of it, or "latest". Raises UnknownRun."""
        runs = root / "runs"
        known = sorted(
            (path.parent.name for path in runs.glob("*/run.db")), key=lambda name: (runs / name).stat().st_mtime
        )
        if run == "latest":
            hits = known[-1:]
        else:
            hits = [run] if run in known else [name for name in known if name.startswith(run)]
        if len(hits) != 1:
            what = f"{len(hits)} runs begin with {run!r}" if hits else f"No run named {run!r}"
            raise UnknownRun(
                f"{what} in {runs}. Latest runs: {', '.join(known[-3:]) or 'none, make one: nkismith draft'}."
            )
        return cls(runs / hits[0], _open(runs / hits[0] / "run.db", _RUN_TABLES))

    @contextmanager
    def session(self) -> Iterator[None]:
        """Hold the run for this process and count its wall time; a second process is refused."""
        with (self.folder / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreError(
                    f"Run {self.id} is being executed by another process. Wait for it, or end it first."
                ) from None
            now = time.time()
            with self._lock:
                self._session = _inserted(self._db, "sessions", {"started_at": now, "seen_at": now})
            try:
                yield
            finally:
                self.touch()
                self._session = None

    def close(self) -> None:
        self._db.close()

    # -- the run ---------------------------------------------------------------------------------

    @property
    def run(self) -> Row:
        with self._lock:
            row = next(iter(self._db.table("run").rows))
        return {**row, "config": json.loads(row["config"])}

    @property
    def id(self) -> str:
        return self.folder.name

    def update_run(self, **fields: Any) -> None:
        with self._lock:
            self._db.table("run").update(self.id, fields)

    def touch(self) -> None:
        """Heartbeat: wall time up to here is kept even if the process is killed next."""
        if self._session is not None:
            with self._lock:
                self._db.table("sessions").update(self._session, {"seen_at": time.time()})

    @property
    def elapsed_s(self) -> float:
        """Wall seconds of all sessions of the run, up to now for the one that is open."""
        with self._lock:
            rows = list(self._db.table("sessions").rows)
        now = time.time()
        return sum((now if row["id"] == self._session else row["seen_at"]) - row["started_at"] for row in rows)

    # -- texts -----------------------------------------------------------------------------------

    def put(self, text: str) -> str:
        """Keep a text; returns its content hash."""
        name = content_hash(text)
        with self._lock:
            self._db.table("texts").insert({"hash": name, "text": text}, ignore=True)
        return name

    def text(self, name: str) -> str:
        with self._lock:
            return str(self._db.table("texts").get(name)["text"])

    # -- the ledger ------------------------------------------------------------------------------

    def spent(self) -> Spent:
        with self._lock:
            (row,) = self._db.query(
                """select coalesce(sum(case when state = 'reserved' then 0 else usd end), 0) as usd,
                          coalesce(sum(case when state = 'reserved' then reserved_usd else 0 end), 0) as reserved_usd,
                          coalesce(sum(case when state = 'reserved' then 0 else input_tokens + cache_write_tokens
                                       + cache_read_tokens + output_tokens end), 0) as tokens,
                          coalesce(sum(case when state = 'reserved'
                                       then reserved_input_tokens + reserved_output_tokens else 0 end), 0)
                              as reserved_tokens,
                          coalesce(sum(state = 'reserved'), 0) as in_flight,
                          coalesce(sum(state = 'replied'), 0) as replies
                   from calls"""
            )
        return Spent(**row)

    def reserve(self, build: Callable[[Spent], Row]) -> Row:
        """Record a call before it is made: `build` sees what is spent and returns the row, in one transaction."""
        with self._lock, self._db.atomic():
            row = {"state": "reserved", "usd": 0.0, "input_tokens": 0, "cache_write_tokens": 0,
                   "cache_read_tokens": 0, "output_tokens": 0, "started_at": time.time()}  # fmt: skip
            row |= build(self.spent())
            row["id"] = _inserted(self._db, "calls", row)
        self.touch()
        return row

    def settle(self, call: int, **fields: Any) -> None:
        """Reconcile a call with what it turned out to be."""
        with self._lock:
            self._db.table("calls").update(call, {"ended_at": time.time(), **fields})
        self.touch()

    def charge_lost_calls(self) -> int:
        """Charge calls that a killed process left in flight at their reserved maximum; returns how many."""
        with self._lock, self._db.atomic():
            lost = list(self._db.table("calls").rows_where("state = 'reserved'"))
            for row in lost:
                self.settle(
                    row["id"], state="lost", usd=row["reserved_usd"], input_tokens=row["reserved_input_tokens"],
                    output_tokens=row["reserved_output_tokens"], error="in flight when the process was killed",
                )  # fmt: skip
        return len(lost)

    def replied(self, request: str) -> Row | None:
        """The call whose reply is stored for this request hash, if there is one."""
        with self._lock:
            rows = self._db.table("calls").rows_where("request = ? and state = 'replied'", [request], order_by="id")
            return next(iter(rows), None)

    def calls(self) -> list[Row]:
        with self._lock:
            return list(self._db.table("calls").rows_where(order_by="id"))

    # -- attempts --------------------------------------------------------------------------------

    def attempt(self, sample: int, attempt: int) -> Row | None:
        with self._lock:
            rows = self._db.table("attempts").rows_where("sample = ? and attempt = ?", [sample, attempt])
            return next(iter(rows), None)

    def add_attempt(self, **fields: Any) -> Row:
        row = {"created_at": time.time(), **fields}
        with self._lock:
            row["id"] = _inserted(self._db, "attempts", row)
        return row

    def update_attempt(self, attempt: int, **fields: Any) -> None:
        with self._lock:
            self._db.table("attempts").update(attempt, fields)

    def attempts(self) -> list[Row]:
        with self._lock:
            return list(self._db.table("attempts").rows_where(order_by="id"))


class Index:
    """All runs of a data folder, and the lessons they left."""

    def __init__(self, root: Path):
        self.root, self._lock = root, threading.RLock()
        self._db = _open(root / "index.db", _INDEX_TABLES)

    def note(self, run: str, **fields: Any) -> None:
        """Insert or update one run's line."""
        with self._lock:
            self._db.table("runs").upsert({"id": run, "updated_at": time.time(), **fields}, pk="id")

    def runs(self, *, op: str | None = None, status: str | None = None) -> list[Row]:
        """Runs, the latest first."""
        conditions = {"op": op, "status": status}
        given = {name: value for name, value in conditions.items() if value is not None}
        where = " and ".join(f"{name} = :{name}" for name in given) or None
        with self._lock:
            return list(self._db.table("runs").rows_where(where, given or None, order_by="created_at desc"))

    def add_lessons(self, lessons: list[Row]) -> None:
        with self._lock:
            self._db.table("lessons").upsert_all(lessons, pk="id")

    def lessons(self) -> list[Row]:
        with self._lock:
            return list(self._db.table("lessons").rows_where(order_by="weight desc, id"))

    def close(self) -> None:
        self._db.close()
