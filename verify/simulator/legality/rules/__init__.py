"""Every legality rule, once: the table behind the names in refusals, docs/legality and `nkismith explain`.

The checks live where they are made (instruction definitions, views, recorder, machine); a test holds that the names
they use are exactly the names of this table.
"""

from __future__ import annotations

from nkismith.verify.simulator.legality.rules import (
    cores,
    engines,
    memory,
    operands,
    operators,
    run_time,
    transfers,
    views,
)
from nkismith.verify.simulator.legality.rules.rule import Rule

__all__ = ["RULES", "SECTIONS", "Rule"]

SECTIONS: dict[str, tuple[Rule, ...]] = {
    "Memory and capacity": memory.RULES,
    "Operands": operands.RULES,
    "Operators and reductions": operators.RULES,
    "Views and indices": views.RULES,
    "Run-time values and loops": run_time.RULES,
    "What single engines ask for": engines.RULES,
    "DMA": transfers.RULES,
    "Launch, cores and results": cores.RULES,
}
RULES: dict[str, Rule] = {rule.name: rule for section in SECTIONS.values() for rule in section}
