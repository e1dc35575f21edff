"""The MCP server over its real transport: a client starts it, lists the tools and calls them."""

import asyncio
import json
import sys

import pytest
from mcp import Client, StdioServerParameters, stdio_client

SOURCE = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def row_scale(x, scale):
    eval("1")
    return x
"""


def talk(*calls):
    """Call tools of a freshly started server; returns (tool names, answers)."""

    async def main():
        server = StdioServerParameters(command=sys.executable, args=["-m", "nkismith.agent.cli", "mcp"])
        async with Client(stdio_client(server)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            return names, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.filterwarnings("ignore")
def test_a_client_gets_ops_lint_cards_and_explanations(op_dir):
    names, (ops, findings, card, page, rule, unknown, nearest) = talk(
        ("list_ops", {}),
        ("lint", {"source": SOURCE, "op": str(op_dir)}),
        ("instruction_card", {"name": "nisa.nc_matmul"}),
        ("explain", {"code": "mismatch"}),
        ("explain", {"code": "partition_limit"}),
        ("explain", {"code": "no_such_code"}),
        ("lint", {"source": SOURCE, "op": "rope3d"}),
    )
    assert names == {"list_ops", "prompt", "lint", "check", "profile", "explain", "instruction_card"}
    assert "rope_3d" in json.dumps(ops.structured_content)
    assert "eval" in json.dumps(findings.structured_content) and '"line": 8' in json.dumps(findings.structured_content)
    assert "stationary" in json.dumps(card.structured_content)
    assert "**How to fix it.**" in json.dumps(page.structured_content)
    assert "at most 128 partitions" in json.dumps(rule.structured_content)
    assert unknown.is_error and "no_such_code" in unknown.content[0].text
    assert nearest.is_error and "Did you mean 'rope_3d'" in nearest.content[0].text


def test_what_an_agent_asks_wrongly_is_told_and_never_its_kernels_fault(op_dir):
    op, torn = str(op_dir), "def row_scale(\n"
    misspelt = SOURCE.replace('eval("1")', "nl.rsqr")
    _, answers = talk(
        ("check", {"source": SOURCE, "op": op, "target": "trn9"}),
        ("check", {"source": SOURCE, "op": op, "sdk": "9.9"}),
        ("profile", {"source": SOURCE, "op": op, "lnc": 7}),
        ("lint", {"source": SOURCE, "op": op, "sdk": "9.9"}),
        ("prompt", {"op": op, "target": "trn9"}),
        ("instruction_card", {"name": "nc_matmull"}),
        ("profile", {"source": torn, "op": op}),
        ("profile", {"source": misspelt, "op": op}),
    )
    assert all(answer.is_error for answer in answers)
    said = [answer.content[0].text for answer in answers]
    for text, expected in zip(
        said, ["trn2, trn3", "2.33", "LNC degree 7", "2.33", "trn2, trn3", "nc_matmul"], strict=False
    ):
        assert expected in text
    assert "line 1: refused [parse]" in said[6] and "Fix: write valid Python" in said[6]
    assert "line 8: refused [unsupported_instruction]" in said[7] and "did you mean rsqrt" in said[7]
