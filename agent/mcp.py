"""The judge as tools for a coding agent: an MCP server on stdio.

An agent in an editor writes a kernel, and gets the same lint, verdict, profile and instruction cards
that a model in the loop gets. A tool answers with what a person would read, as JSON.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from nkismith.agent.commands.options import check_machine, plain
from nkismith.kernels import spec as specs

server = MCPServer(
    "nkismith",
    instructions="Write NKI kernels for AWS Trainium: read `prompt` for an op, ask `instruction_card` when unsure, "
    "`lint` often, `check` for the verdict, `profile` to make it faster. `source` is the text of the kernel file; "
    "`op` is a bundled op (see `list_ops`) or a folder with spec.yaml and reference.py.",
)


def _tool(function: Callable[..., Any]) -> Callable[..., Any]:
    """Offer a function as a tool. Our own errors say what to do, so the agent reads them; others stay ours."""

    @server.tool()
    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        try:
            return function(**arguments)
        except Exception as error:
            if type(error).__module__.startswith("nkismith."):
                raise ToolError(str(error)) from None
            raise

    return call


@_tool
def list_ops() -> list[dict[str, str]]:
    """The bundled ops, one line each."""
    return [{"op": name, "summary": specs.load(name).summary} for name in specs.names()]


@_tool
def prompt(op: str, target: str = "trn2", sdk: str = "2.33", lnc: int = 1) -> str:
    """The task for an op: contract, machine, instruction cards, worked examples."""
    from nkismith.prompts import render

    check_machine(target, sdk, lnc)
    return render.first(specs.load(op), target=target, sdk=sdk, lnc=lnc).text


@_tool
def lint(source: str, op: str, sdk: str = "2.33") -> list[dict[str, Any]]:
    """What is wrong with a kernel source on sight, without running it. An empty list means nothing."""
    from nkismith.verify.lint import lint as find

    check_machine("trn2", sdk)
    spec = specs.load(op)
    found = find(source, entry=spec.op, params=tuple(spec.inputs), sdk=sdk, max_literals=spec.limits.constants)
    return [plain(finding) for finding in found]


@_tool
def check(source: str, op: str, target: str = "trn2", sdk: str = "2.33", lnc: int = 1) -> dict[str, Any]:
    """The verdict on a kernel source: stage, reason code, line, what is wrong, how to fix it, the failing case.

    `cases` is how many were executed and compared; max_ratio is the largest error over what is allowed.
    """
    from nkismith import verify

    check_machine(target, sdk, lnc)
    verdict = verify.check(source, specs.load(op), target=target, sdk=sdk, lnc=lnc)
    return plain(verdict) | {"cases": len(verdict.cases)}  # all of them are 60 KB, which an agent pays for by the token


@_tool
def profile(source: str, op: str, target: str = "trn2", sdk: str = "2.33", lnc: int = 1) -> dict[str, Any]:
    """Modelled time and traffic of a kernel at the op's production case, by engine and by line, with the floor."""
    from nkismith import verify
    from nkismith.prompts.contract import production
    from nkismith.verify.failure import Failure

    check_machine(target, sdk, lnc)
    spec = specs.load(op)
    try:
        return plain(verify.profile(source, spec, production(spec), target=target, sdk=sdk, lnc=lnc))
    except Failure as failure:
        where = f"line {failure.line}: " if failure.line else ""
        fix = f" Fix: {failure.fix}" if failure.fix else ""
        raise ToolError(f"{where}refused [{failure.rule or failure.reason}] {failure}{fix}") from None


@_tool
def explain(code: str) -> str:
    """What a reason code of a verdict, a rule of the lint or a legality rule means, why, and what to do about it."""
    from nkismith.verify import pages

    return pages.explain(code)


@_tool
def instruction_card(name: str, target: str = "trn2", sdk: str = "2.33") -> dict[str, Any]:
    """Signature, engines, limits, meaning and cost of one instruction of nki.isa, such as nc_matmul."""
    from nkismith.verify.simulator import instructions

    check_machine(target, sdk)
    (card,) = instructions.cards([name.removeprefix("nisa.").removeprefix("nki.isa.")], sdk, target)
    return plain(card)


def serve() -> None:
    """Answer on stdin and stdout until the client hangs up."""
    server.run("stdio")
