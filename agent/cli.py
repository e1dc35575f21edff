"""`nkismith`: the only module that may reach into every room, and it does so only when a command runs.

Exit codes: 0 done or accepted; 1 rejected or not met; 2 wrong use or a failure of ours (one line that
says what, where and how to fix it); 3 waiting for a hand-off reply.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer
from typer.exceptions import TyperException

from nkismith.agent.commands import clip, draft, inspect, judge, make, tools, verify

app = typer.Typer(
    name="nkismith",
    help="From an op spec to a verified NKI kernel for AWS Trainium, and from kernels to video, without a Trainium.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for group in (make, clip, judge, verify, draft, inspect, tools):
    group.register(app)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"nkismith {metadata.version('nkismith')}")
        raise typer.Exit()


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every expected failure becomes one line on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = int(app(words, prog_name="nkismith", standalone_mode=False) or 0)
        return _refused("Interrupted.") if code == 130 else code
    except TyperException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "nkismith")
        message = error.format_message()
        return _refused(f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{command} --help`.")
    except typer.Abort:
        return _refused("Interrupted.")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("NKISMITH_DEBUG"):
            raise
        if type(error).__module__.startswith("nkismith."):  # our own error classes carry the whole message
            return _refused(str(error))
        if isinstance(error, OSError) and error.filename is not None:
            return _refused(f"{error.filename}: {error.strerror}. Check the path and its permissions.")
        place = traceback.extract_tb(error.__traceback__)[-1]
        return _refused(
            f"A failure of nkismith itself: {type(error).__name__}: {' '.join(str(error).split())} "
            f"({place.filename}:{place.lineno}). Set NKISMITH_DEBUG=1 for the traceback, and report it."
        )


def _refused(message: str) -> int:
    sys.stdout.flush()
    print(f"nkismith: {' '.join(message.split())}", file=sys.stderr)
    return 2


def main() -> None:
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(run())


def _terminated(number: int, frame: object) -> None:
    """End as an error ends, so that half-written files and child processes are cleared away."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
