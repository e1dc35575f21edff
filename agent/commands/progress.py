"""How far a command is: a bar on a terminal's stderr; elsewhere, as in a log, a line every half minute."""

from __future__ import annotations

import threading
from typing import Any

QUIET_S = 30.0
"""How long a command may work without a word where there is no bar."""


class Progress:
    """A context manager. what: the work, in a word or two. console: Rich's; on stderr by default."""

    def __init__(self, what: str, console: Any = None, *, quiet_s: float = QUIET_S):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._console = console or Console(stderr=True)
        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"), TimeElapsedColumn(),
        )  # fmt: skip
        self._bar = Bar(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task(what, total=None, status="")
        self._said, self._quiet_s, self._ended = what, quiet_s, threading.Event()
        self._what = what

    def __enter__(self) -> Progress:
        self._bar.start()
        if not self._console.is_terminal:  # from a thread of its own: also one step may take minutes
            threading.Thread(target=self._remind, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._bar.stop()

    def at(self, status: str, done: int | None = None, of: int | None = None) -> None:
        """Say what is being done; done and of: how many steps."""
        from rich.markup import escape

        self._bar.update(self._task, status=escape(status), completed=done, total=of)
        self._said = f"{self._what}: {status}" + (f" {done} of {of}" if of else "")

    def _remind(self) -> None:
        while not self._ended.wait(self._quiet_s):
            self._console.print(self._said, markup=False, highlight=False, soft_wrap=True)
