"""Rules on operators, their operands, and reductions."""

from nkismith.verify.simulator.legality.rules.rule import Rule

_TABLE = "nki.api.shared (supported math operators)"

RULES = (
    Rule(
        "operator",
        what="A parameter gets an operator or activation function that it takes.",
        why="Instructions implement parts of the operator table: some only sum, some only compare.",
        fix="Choose one that the message lists, or another instruction.",
        source=_TABLE,
    ),
    Rule(
        "engine_operator",
        what="The engine that runs the instruction has the operator.",
        why="rsqrt and power, for instance, do not exist on every engine.",
        fix="Choose the engine that has it, or the activation function of ScalarE.",
        source=_TABLE,
    ),
    Rule(
        "operator_mix",
        what="The operators of one instruction are all bit-wise or all arithmetic.",
        why="Bit-wise operators see bit patterns, arithmetic ones see float32: an instruction has one data path.",
        fix="Split it into two instructions.",
        source="nki.isa.tensor_scalar",
    ),
    Rule(
        "unary_operand",
        what="An operator with one input has no second one, and an operand comes with an operator.",
        why="The value would be ignored.",
        fix="Leave the operand out.",
        source=_TABLE,
    ),
    Rule(
        "reverse",
        what="Operands are exchanged only where the instruction can do so.",
        why="Some instructions have the parameter without the function, and without an operator nothing is exchanged.",
        fix="Rewrite the formula, such as x - y as (y - x) * -1.",
        source="nki.isa.tensor_scalar_reduce, nki.isa.tensor_copy_predicated, nki.isa.activate2",
    ),
    Rule(
        "reduce_axis",
        what="A reduction runs over the last free dimensions.",
        why="An engine reduces along the stream of elements of a partition; partitions are different lanes.",
        fix="Permute the view so that the dimension is last; over partitions use a matmul with ones or "
        "nisa.tensor_partition_reduce.",
        source="nki.isa.tensor_reduce",
    ),
    Rule(
        "reduce_cmd",
        what="reduce_cmd is one that the instruction has.",
        why="Not every instruction can load, keep or clear the accumulator.",
        fix="Choose one that the message lists.",
        source="nki.isa.reduce_cmd",
    ),
    Rule(
        "reduce_init",
        what="The accumulator's first value is given exactly with reduce_cmd.load_reduce.",
        why="Other commands start from zero or from what the accumulator holds, and would ignore it.",
        fix="Pass both or neither.",
        source="nki.isa.tensor_scalar_reduce, nki.isa.exponential",
    ),
    Rule(
        "memset_value",
        what="The value of nisa.memset is a number that the tile's dtype holds; packed dtypes take 0.",
        why="The value is a constant in the instruction, written as bits.",
        fix="Pass an int for an integer tile, within its range; store a run-time scalar with nisa.scalar_store.",
        source="nki.isa.memset",
    ),
)
