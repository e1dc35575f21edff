"""docs/cli.md from the commands' own help; `python docs/generate.py` writes it."""

from __future__ import annotations

from typing import Any

import typer

from nkismith.agent.cli import app

WIDTH = 110
_INTRODUCTION = """\
# Command line

Generated from `--help`; `python docs/generate.py` writes it anew.

Exit codes: 0 done or accepted; 1 rejected or not met; 2 wrong use or a failure of nkismith (one line on stderr);
3 waiting for a hand-off reply. `--json` answers on stdout with the field names of the Python API.
"""


def markdown() -> str:
    """The help of every command, in the order of `nkismith --help`."""
    group: Any = typer.main.get_command(app)
    sections = [_INTRODUCTION]
    with group.make_context(
        "nkismith", [], resilient_parsing=True, terminal_width=WIDTH, max_content_width=WIDTH
    ) as top:
        for name, command in group.commands.items():
            with command.make_context(name, [], parent=top, resilient_parsing=True) as context:
                sections.append(f"## {name}\n\n```text\n{command.get_help(context).strip()}\n```\n")
    return "\n".join(sections)
