"""From a model's reply to a draft: exactly one fenced Python block is the source, anything else is told back."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_CHANGE = re.compile(r"^\W*change\W*:\W*(.+)$", re.IGNORECASE | re.MULTILINE)
_PYTHON = {"python", "py", "python3"}


@dataclass(frozen=True)
class BadReply:
    """Why a reply holds no draft: reason code, and the sentence that the model gets."""

    reason: str
    message: str
    fix: str


@dataclass(frozen=True)
class Draft:
    """The source of a reply, and the model's own sentence on what it changed ("" if it gave none)."""

    source: str
    change: str


def extract(text: str, stop_reason: str) -> Draft | BadReply:
    """The draft in a reply. stop_reason is the provider's: a cut-off or refused reply says so before its form."""
    if stop_reason in ("max_tokens", "model_context_window_exceeded"):
        return BadReply(
            "reply_truncated",
            "The reply was cut off at its output limit before the kernel was complete.",
            "Answer with less text around the kernel, and a shorter kernel.",
        )
    if stop_reason == "refusal":
        return BadReply(
            "reply_refused", "The reply was a refusal.", "The task is an ordinary numerical kernel; write it."
        )
    blocks, unclosed = _blocks(text)
    if unclosed:
        return BadReply("reply_truncated", "The last code block has no closing fence.", "Close the block with ```.")
    python = [body for language, body in blocks if language.lower() in _PYTHON]
    if not python and len(blocks) == 1 and not blocks[0][0]:
        python = [blocks[0][1]]
    if len(python) != 1:
        found = "no fenced Python block" if not python else f"{len(python)} fenced Python blocks"
        return BadReply(
            "reply_format",
            f"The reply holds {found}; it must hold exactly one, with the whole source file in it.",
            "Put the complete kernel in one ```python block and no other Python in fences.",
        )
    change = _CHANGE.search(text)
    return Draft(python[0], change.group(1).strip(" *_`")[:300] if change else "")


def _blocks(text: str) -> tuple[list[tuple[str, str]], bool]:
    """(language, body) of every fenced block, and whether the last one was left open."""
    blocks: list[tuple[str, str]] = []
    fence, language, body = "", "", [""]
    for line in text.splitlines():
        match = _FENCE.match(line)
        if not fence and match:
            fence, language, body = match.group(1), match.group(2), []
        elif fence and match and match.group(1).startswith(fence) and line.strip() == match.group(1):
            blocks.append((language, "\n".join(body) + "\n"))
            fence = ""
        elif fence:
            body.append(line)
    return blocks, bool(fence)
