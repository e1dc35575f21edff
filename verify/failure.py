"""A draft's failure, on its way from the stage that found it to the verdict."""

from __future__ import annotations

from nkismith.verify.reasons import Reason


class Failure(Exception):
    """The draft failed. `check` turns it into a Verdict; it never leaves this room.

    Attributes: reason (code), message (what was seen, where, the limit), fix (one sentence, may be empty), line
    (1-based line of the draft), rule (the lint or legality rule behind the reason, if any).
    """

    def __init__(self, reason: Reason, message: str, *, fix: str = "", line: int | None = None, rule: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.fix, self.line, self.rule = reason, message, fix, line, rule
