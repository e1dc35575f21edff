"""Commands for the workplace: doctor, mcp."""

from __future__ import annotations

import typer

from nkismith.agent.commands.options import Json, emit


def register(app: typer.Typer) -> None:
    app.command()(doctor)
    app.command()(mcp)


def doctor(json: Json = False) -> int:
    """Check this machine: what works, what does not, and how to mend it.

    \b
    nkismith doctor
    nkismith doctor --json
    """
    from nkismith.agent import doctor as examination

    findings = examination.examine()
    if json:
        emit(findings)
    else:
        for finding in findings:
            print(f"{finding.mark:8} {finding.name}: {finding.found}")
            if finding.fix:
                print(f"         {finding.fix}")
    return 1 if any(finding.mark == "broken" for finding in findings) else 0


def mcp() -> int:
    """Serve lint, check, profile and the instruction cards to a coding agent (Model Context Protocol, on stdio).

    \b
    nkismith mcp
    """
    import sys
    from pathlib import Path

    from nkismith.agent import mcp as server

    if sys.stdin.isatty():
        print(
            "nkismith: waiting for an agent that speaks the Model Context Protocol on this terminal; its configuration "
            f'names the command {Path(sys.argv[0]).absolute()} with the argument "mcp". Ctrl-D ends.',
            file=sys.stderr,
        )

    server.serve()
    return 0
