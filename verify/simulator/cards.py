"""Instruction cards: the definition table as text, for prompts, the docs and the command line."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from nkismith.verify.simulator import sdk as releases
from nkismith.verify.simulator.dtypes import PACKED
from nkismith.verify.simulator.errors import UnsupportedInstruction
from nkismith.verify.simulator.instruction import ANY_DTYPE, TABLE, Definition, Tile


@dataclass(frozen=True, slots=True)
class Card:
    """One instruction as a reader needs it. `signature` starts with the parenthesis; `name=` is left out."""

    name: str
    signature: str
    engines: tuple[str, ...]
    operands: tuple[str, ...]  # a line a tensor: role, memories, dtypes
    limits: tuple[str, ...]
    meaning: str
    cost: str
    since: str
    targets: tuple[str, ...]

    def markdown(self) -> str:
        """The instruction's page under docs/instructions."""
        lines = [
            f"# nki.isa.{self.name}",
            "",
            "```python",
            f"nki.isa.{self.name}{self.signature}",
            "```",
            "",
            self.meaning,
            "",
            "| | |",
            "|---|---|",
            f"| engines (default first) | {', '.join(self.engines)} |",
            f"| targets | {', '.join(self.targets)} |",
            f"| since | SDK {self.since} (NKI {releases.RELEASES[self.since]}) |",
            f"| cost, engine cycles (N: elements a partition) | {self.cost} |",
            *(f"| limit | {limit} |" for limit in self.limits),
            "",
            "Operands:",
            "",
            *(f"- {line}" for line in self.operands),
        ]
        return "\n".join(lines) + "\n"


def card(name: str, sdk: str = releases.NEWEST) -> Card:
    """The card of one instruction. Raises UnsupportedInstruction when `sdk` does not have it."""
    definition = TABLE.get(name)
    missing = releases.absent(f"nki.isa.{name}", sdk)
    if definition is None or missing is not None:
        near = difflib.get_close_matches(name, TABLE)
        raise UnsupportedInstruction(
            f"nki.isa.{name}", why=str(missing or (f"did you mean {' or '.join(near)}?" if near else ""))
        )
    return Card(
        name=name,
        signature=_signature(definition, sdk),
        engines=definition.engines,
        operands=tuple(_operand(n, k) for n, k in definition.params.items() if isinstance(k, Tile)),
        limits=definition.limits,
        meaning=definition.doc,
        cost=definition.cost,
        since=releases.since(f"nki.isa.{name}"),
        targets=definition.targets,
    )


def cards(names: Iterable[str], sdk: str = releases.NEWEST, target: str = "trn2") -> list[Card]:
    """Cards of those named instructions that `sdk` and `target` have, in order. Raises for an unknown name."""
    wanted = [n for n in names if n not in TABLE or releases.absent(f"nki.isa.{n}", sdk) is None]
    return [c for c in (card(n, sdk) for n in wanted) if target in c.targets]


def public() -> list[str]:
    """Names of all instructions that kernels can call."""
    return sorted(n for n, d in TABLE.items() if d.public)


def _signature(definition: Definition, sdk: str) -> str:
    later = releases.later_parameters(f"nki.isa.{definition.name}", sdk)
    shown = []
    for parameter in definition.signature.parameters.values():
        if parameter.name == "name" or parameter.name in later:
            continue
        default = parameter.default
        if default is inspect.Parameter.empty:
            shown.append(parameter.name)
        elif isinstance(default, Enum):
            shown.append(f"{parameter.name}={type(default).__name__}.{default.name}")
        elif hasattr(default, "nki_op"):  # an operator object: its repr would differ from process to process
            shown.append(f"{parameter.name}=nl.{default.nki_op}")
        else:
            shown.append(f"{parameter.name}={default!r}")
    return f"({', '.join(shown)})"


def _operand(name: str, kind: Tile) -> str:
    role = {"in": "read", "out": "written", "inout": "read and written"}[kind.role]
    shape = " number or (P, 1) tile," if kind.vector else " number or tile," if kind.number else ""
    optional = ", optional" if kind.optional and not (kind.vector or kind.number) else ""
    return f"`{name}`:{shape} {role}, in {' or '.join(kind.spaces)}, {_dtypes(kind.dtypes)}{optional}"


def _dtypes(dtypes: frozenset[str]) -> str:
    missing = ANY_DTYPE - dtypes
    if len(missing) > 6:
        return ", ".join(sorted(dtypes))
    names = (["packed x4"] if missing >= PACKED else []) + sorted(missing - PACKED)
    return f"any dtype but {', '.join(names)}" if names else "any dtype"
