"""Rules on operators, their operands, and reductions."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

_TABLE = "nki.api.shared (supported math operators)"

RULES = (
    Rule(
        "operator",
        what="A parameter gets an operator or activation function that it takes.",
        why="Instructions implement parts of the operator table: some only sum, some only compare.",
        fix="Choose one that the message lists, or another instruction.",
        source=_TABLE,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.activation(dst=tile, op=nl.maximum, data=tile)
                +     nisa.activation(dst=tile, op=nl.relu, data=tile)
                      nl.store(y, tile)
                      return y
                """,
                says="activation: op='maximum' is not an activation function",
                gives="np.maximum(x, 0)",
            ),
        ),
    ),
    Rule(
        "engine_operator",
        what="The engine that runs the instruction has the operator.",
        why="rsqrt and power, for instance, do not exist on every engine.",
        fix="Choose the engine that has it, or the activation function of ScalarE.",
        source=_TABLE,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=1.0, engine=nisa.engine.scalar)
                +     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=-1.0, engine=nisa.engine.scalar)
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_scalar: subtract on ScalarE of trn2",
                gives="x - 1",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.maximum, operand0=1.0, engine=nisa.engine.scalar)
                +     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=1.0, engine=nisa.engine.scalar)
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_scalar: maximum on ScalarE of trn3",
                gives="x - 1",
                target="trn3",
            ),
        ),
    ),
    Rule(
        "operator_mix",
        what="The operators of one instruction are all bit-wise or all arithmetic.",
        why="Bit-wise operators see bit patterns, arithmetic ones see float32: an instruction has one data path.",
        fix="Split it into two instructions.",
        source="nki.isa.tensor_scalar",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      nisa.tensor_scalar(
                          dst=tile, data=tile, op0=nl.bitwise_and, operand0=7, operand1=8,
                -         op1=nl.add,
                +         op1=nl.bitwise_or,
                      )
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_scalar: a bit-wise and an arithmetic operator in one instruction",
                gives="(x & 7) | 8",
                given="x int32 (4, 8)",
                at="tensor_scalar(",
            ),
        ),
    ),
    Rule(
        "unary_operand",
        what="An operator with one input has no second one, and an operand comes with an operator.",
        why="The value would be ignored.",
        fix="Leave the operand out.",
        source=_TABLE,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.abs, operand0=1.0)
                +     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.abs, operand0=None)
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_scalar: abs takes no operand0",
                gives="np.abs(x)",
            ),
        ),
    ),
    Rule(
        "reverse",
        what="Operands are exchanged only where the instruction can do so.",
        why="Some instructions have the parameter without the function, and without an operator nothing is exchanged.",
        fix="Rewrite the formula, such as x - y as (y - x) * -1.",
        source="nki.isa.tensor_scalar_reduce, nki.isa.tensor_copy_predicated, nki.isa.activate2",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, total = nl.load(x), nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.sbuf)
                      nisa.tensor_scalar_reduce(
                          dst=tile, data=tile, op0=nl.subtract, operand0=1.0, reduce_op=nl.add, reduce_res=total,
                -         reverse0=True,
                +         reduce_res_negate=True,
                      )
                      nl.store(y, total)
                      return y
                """,
                says="tensor_scalar_reduce: reverse0 is not supported yet",
                gives="(1 - x).sum(axis=1, keepdims=True)",
                at="tensor_scalar_reduce(",
            ),
        ),
    ),
    Rule(
        "reduce_axis",
        what="A reduction runs over the last free dimensions.",
        why="An engine reduces along the stream of elements of a partition; partitions are different lanes.",
        fix="Permute the view so that the dimension is last; over partitions use a matmul with ones or "
        "nisa.tensor_partition_reduce.",
        source="nki.isa.tensor_reduce",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, total = nl.load(x), nl.ndarray((x.shape[0], 4), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=1)
                +     nisa.tensor_reduce(dst=total, op=nl.add, data=tile.permute((0, 2, 1)), axis=2)
                      nl.store(y, total)
                      return y
                """,
                says="tensor_reduce: axis=1 of shape (4, 3, 4)",
                gives="x.sum(axis=1)",
                given="x float32 (4, 3, 4)",
            ),
        ),
    ),
    Rule(
        "reduce_cmd",
        what="reduce_cmd is one that the instruction has.",
        why="Not every instruction can load, keep or clear the accumulator.",
        fix="Choose one that the message lists.",
        source="nki.isa.reduce_cmd",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, total = nl.load(x), nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.sbuf)
                      nisa.activation(
                          dst=tile, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total,
                -         reduce_cmd=nisa.reduce_cmd.load_reduce,
                +         reduce_cmd=nisa.reduce_cmd.reset_reduce,
                      )
                      nl.store(y, total)
                      return y
                """,
                says="activation: reduce_cmd=load_reduce",
                gives="np.exp(x).sum(axis=1, keepdims=True)",
                at="activation(",
            ),
        ),
    ),
    Rule(
        "reduce_init",
        what="The accumulator's first value is given exactly with reduce_cmd.load_reduce.",
        why="Other commands start from zero or from what the accumulator holds, and would ignore it.",
        fix="Pass both or neither.",
        source="nki.isa.tensor_scalar_reduce, nki.isa.exponential",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, total = nl.load(x), nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.sbuf)
                      nisa.tensor_scalar_reduce(
                          dst=tile, data=tile, op0=nl.multiply, operand0=2.0,
                          reduce_op=nl.add, reduce_res=total, reduce_init=5.0,
                -         reduce_cmd=nisa.reduce_cmd.reset_reduce,
                +         reduce_cmd=nisa.reduce_cmd.load_reduce,
                      )
                      nl.store(y, total)
                      return y
                """,
                says="tensor_scalar_reduce: reduce_init with reduce_cmd=reset_reduce",
                gives="5 + 2 * x.sum(axis=1, keepdims=True)",
                at="tensor_scalar_reduce(",
            ),
        ),
    ),
    Rule(
        "memset_value",
        what="The value of nisa.memset is a number that the tile's dtype holds; packed dtypes take 0.",
        why="The value is a constant in the instruction, written as bits.",
        fix="Pass an int for an integer tile, within its range; store a run-time scalar with nisa.scalar_store.",
        source="nki.isa.memset",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
                      tile = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.sbuf)
                -     nisa.memset(dst=tile, value=128)
                +     nisa.memset(dst=tile, value=127)
                      nl.store(y, tile)
                      return y
                """,
                says="memset: 128 into int8",
                gives="np.full(x.shape, 127)",
            ),
        ),
    ),
)
