"""The person watching: the tree of attempts, money against its cap, the best kernel against the floor.

On a terminal the tree is redrawn in place; elsewhere each attempt becomes one line when it is judged, and a line says
every half minute what is being done.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from nkismith.agent.commands.progress import QUIET_S
from nkismith.agent.diagnosis import outcome
from nkismith.agent.run import Plan
from nkismith.results.store import Row, RunStore


class View:
    """A watcher of one run; use it as a context manager around `execute`."""

    def __init__(self, store: RunStore, plan: Plan, console: Console, *, quiet_s: float = QUIET_S):
        self._store, self._plan, self._console, self._quiet_s = store, plan, console, quiet_s
        self._ended = threading.Event()
        self._notes: dict[int, str] = {}
        self._told: set[tuple[int, str]] = set()
        self._lock = threading.Lock()
        self._beat = time.monotonic()
        self._live = Live(self._draw(), console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        else:
            threading.Thread(target=self._remind, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._notes.clear()
        if self._live:
            self._live.update(self._draw(), refresh=True)
            self._live.stop()

    def note(self, sample: int, text: str) -> None:
        """What a lane is doing right now."""
        with self._lock:
            new = self._notes.get(sample) != text
            self._notes[sample] = text
            if time.monotonic() - self._beat > 1:  # a long reply is also the run's heartbeat
                self._beat = time.monotonic()
                self._store.touch()
        if self._live:
            self._live.update(self._draw())
        elif new and text.startswith("waiting for"):
            self._console.print(f"lane {sample}: {text}", highlight=False, soft_wrap=True)

    def update(self) -> None:
        """An attempt was added or judged."""
        with self._lock:
            self._notes.clear()
        if self._live:
            self._live.update(self._draw())
            return
        for row in self._store.attempts():
            key = (row["id"], row["stage"] or "")
            if row["stage"] and key not in self._told:
                self._told.add(key)
                self._console.print(_line(row), highlight=False, soft_wrap=True)

    def _remind(self) -> None:
        while not self._ended.wait(self._quiet_s):
            with self._lock:
                notes = [
                    (lane, note) for lane, note in sorted(self._notes.items()) if not note.startswith("waiting for")
                ]
            for lane, note in notes:
                self._console.print(f"lane {lane}: {note}", markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> Group:
        rows = [row for row in self._store.attempts() if row["reply"]]
        root = Tree(Text(f"{self._plan.op} on {self._plan.target}, LNC {self._plan.lnc}", style="bold"))
        branches = {None: root}
        for row in rows:
            above = branches.get(row["parent"], root)
            branches[row["id"]] = above.add(_line(row))
        for sample, note in sorted(self._notes.items()):
            root.add(Text(f"lane {sample}: {note}", style="dim"))
        return Group(root, self._summary(rows))

    def _summary(self, rows: list[Row]) -> Text:
        spent, caps = self._store.spent(), self._plan.caps
        money = f"${spent.committed_usd:.3f}" + (f" of ${caps.usd:.2f}" if caps.usd is not None else "")
        tries = f"{spent.replies}" + (f" of {caps.attempts}" if caps.attempts is not None else "")
        text = f"spent {money}   replies {tries}   {self._store.elapsed_s:.0f} s"
        timed = [row for row in rows if row["accepted"] and row["latency_us"]]
        if timed:
            best = min(timed, key=lambda row: row["latency_us"])
            text += f"   best {best['latency_us']:.1f} µs modelled, floor {best['floor_us']:.1f} µs"
        return Text(text, style="cyan")


def _line(row: Row) -> Text:
    what = f"{row['sample']}.{row['attempt']} {row['kind']}: "
    if not row["verdict"]:
        return Text(what + "checking" if row["source"] else what + "replied")
    return Text(what + outcome(row), style="green" if row["accepted"] else "red")
