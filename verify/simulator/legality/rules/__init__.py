"""Every legality rule, once: the table behind the names in refusals, docs/legality and `nkismith explain`.

The checks live where they are made (instruction definitions, views, recorder, machine); a test holds that the names
they use are exactly the names of this table.
"""

from __future__ import annotations

from nkismith.verify.simulator.legality.rules import (
    availability,
    cores,
    loops,
    matmul,
    memory,
    operands,
    operators,
    run_time_addresses,
    run_time_scalars,
    signature,
    transfers,
    transpositions,
    vector_gpsimd,
    views,
)
from nkismith.verify.simulator.legality.rules.rule import Example, Rule

__all__ = ["RULES", "SECTIONS", "Example", "Rule"]

SECTIONS: dict[str, tuple[Rule, ...]] = {
    "Memory and capacity": memory.RULES,
    "Operands": operands.RULES,
    "Engines, targets and releases": availability.RULES,
    "Operators and reductions": operators.RULES,
    "Views and indices": views.RULES,
    "Run-time addresses": run_time_addresses.RULES,
    "Run-time scalars and registers": run_time_scalars.RULES,
    "Loops, order and budgets": loops.RULES,
    "Matrix multiplication": matmul.RULES,
    "Transpositions": transpositions.RULES,
    "VectorE and GpSimdE": vector_gpsimd.RULES,
    "DMA": transfers.RULES,
    "Launch and cores": cores.RULES,
    "Arguments and results": signature.RULES,
}
RULES: dict[str, Rule] = {rule.name: rule for section in SECTIONS.values() for rule in section}
