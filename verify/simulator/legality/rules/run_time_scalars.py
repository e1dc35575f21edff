"""Rules on integers that only the device knows: scalars and registers."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

_POISON = "not defined by the documentation; what the memory holds differs from run to run"

RULES = (
    Rule(
        "host_control_flow",
        what="Python does not branch, count or iterate on tensors, run-time scalars or registers.",
        why="The kernel is built before it runs: there is no value to look at.",
        fix="Compute with masks (nl.where, nisa.select_reduce), or loop with nl.fori_loop and nl.while_loop.",
        source="nki-dynamic-loops",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, count = nl.load(x), nisa.scalar_load(n)

                      def double(i):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

                -     for i in range(count):
                -         double(i)
                +     nl.fori_loop(0, count, double)
                      nl.store(y, tile)
                      return y
                """,
                says="an NkiScalar as a Python value: it has none while the kernel is built",
                gives="x * 8",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "scalar_comparison",
        what="The result of comparing run-time scalars is not used as a number, an index, a bound or a condition.",
        why="Sequencers compare only inside their own loop instructions.",
        fix="Let a while loop count down to zero; compare on tiles with nisa.tensor_scalar.",
        source="nki-scalar",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, count = nl.load(x), nisa.scalar_load(n)

                      def double(i):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

                -     nl.fori_loop(0, count > 1, double)
                +     nl.fori_loop(0, count - 1, double)
                      nl.store(y, tile)
                      return y
                """,
                says="a comparison as a loop bound",
                gives="x * 4",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "scalar_operand",
        what="A run-time scalar is combined with ints and scalars.",
        why="Sequencers compute with integers.",
        fix="Load the other value with nisa.scalar_load, or compute on tiles.",
        source="nki-scalar",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, at = nl.load(x), nisa.scalar_load(n)
                -     nl.store(y, tile[:, nl.ds(at * 1.5, 1)])
                +     nl.store(y, tile[:, nl.ds(at * 2, 1)])
                      return y
                """,
                says="arithmetic of an NkiScalar with float",
                gives="x[:, 6:7]",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "scalar_operator",
        what="Run-time scalars have +, - and *.",
        why="Sequencers have no other arithmetic that kernels can use.",
        fix="Compute the value on a 1x1 tile and load it.",
        source="nki-scalar",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, at = nl.load(x), nisa.scalar_load(n)
                -     nl.store(y, tile[:, nl.ds(at // 2, 1)])
                +     nl.store(y, tile[:, nl.ds(at - 2, 1)])
                      return y
                """,
                says="the operator // on an NkiScalar",
                gives="x[:, 1:2]",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "scalar_tile",
        what="A scalar or register is loaded from, and stored to, a tensor of one element.",
        why="It is one word.",
        fix="Slice one element, tile[i:i+1, j:j+1].",
        source="nki.isa.scalar_load, nki.isa.register_load",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, starts = nl.load(x), nl.load(n)
                -     at = nisa.scalar_load(starts)
                +     at = nisa.scalar_load(starts[0:1, 1:2])
                      nl.store(y, tile[:, nl.ds(at, 1)])
                      return y
                """,
                says="scalar_load: src is (1, 2)",
                gives="x[:, 5:6]",
                given="x float32 (4, 8); n int32 [[2, 5]]",
            ),
        ),
    ),
    Rule(
        "scalar_width",
        what="Scalars are int32 or int64, not mixed; int64 serves as an HBM offset only; constants fit into 64 bits.",
        why="Registers have 32 bits; HBM addresses need more.",
        fix="View unsigned data as signed, and load bounds and on-chip offsets as int32.",
        source="nki-scalar",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, start = nl.load(x), nl.load(n)
                -     at = nisa.scalar_load(start)
                +     at = nisa.scalar_load(start.view(nl.int32))
                      nl.store(y, tile[:, nl.ds(at, 1)])
                      return y
                """,
                says="scalar_load of uint32",
                gives="x[:, 5:6]",
                given="x float32 (4, 8); n uint32 [[5]]",
            ),
        ),
    ),
    Rule(
        "register_value",
        what="A register is set to a 32-bit constant or another register, and only registers are stored as such.",
        why="It is one 32-bit word of a sequencer.",
        fix="Make registers with nisa.register_alloc, load tiles with nisa.register_load.",
        source="nki.isa.register_move",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((1, 1), dtype=nl.uint32, buffer=nl.shared_hbm)
                      word, tile = nisa.register_alloc(), nl.ndarray((1, 1), dtype=nl.uint32, buffer=nl.sbuf)
                -     nisa.register_move(word, 1 << 32)
                +     nisa.register_move(word, (1 << 32) - 1)
                      nisa.register_store(tile, word)
                      nl.store(y, tile)
                      return y
                """,
                says="4294967296 in a 32-bit register",
                gives="np.full((1, 1), 2**32 - 1)",
            ),
        ),
    ),
    Rule(
        "register_arithmetic",
        what="Python does not compute with registers.",
        why="A VirtualRegister is a place, not a value.",
        fix="Load an NkiScalar with nisa.scalar_load and compute with that.",
        source="nki.isa.register_alloc",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, count = nl.load(x), nisa.register_alloc()
                      nisa.register_load(count, n)

                      def double(i):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

                -     nl.fori_loop(0, count - 1, double)
                +     nl.fori_loop(1, count, double)
                      nl.store(y, tile)
                      return y
                """,
                says="arithmetic on a VirtualRegister",
                gives="x * 4",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "frozen_register",
        what="The index of a compiled loop is not written.",
        why="The loop alone counts; a write would change nothing.",
        fix="Keep other state in a register of your own.",
        source="nki-dynamic-loops",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
                      count, last = nisa.register_alloc(), nisa.register_alloc(0)
                      nisa.register_load(count, n)

                      def body(i):
                -         nisa.register_move(i, last)
                +         nisa.register_move(last, i)

                      nl.fori_loop(0, count, body)
                      tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
                      nisa.register_store(tile, last)
                      nl.store(y, tile)
                      return y
                """,
                says="a write to the induction register of a loop",
                gives="n - 1",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "unwritten_scalar",
        what="A register, a scalar or a seed is not read from memory that nothing wrote.",
        why="The value would be arbitrary.",
        fix="Write the element first; give a register a value with nisa.register_alloc(0).",
        source=_POISON,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, start = nl.load(x), nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
                -     nisa.memset(dst=start[0:1, 1:2], value=5)
                +     nisa.memset(dst=start[0:1, 0:1], value=5)
                      at = nisa.scalar_load(start[0:1, 0:1])
                      nl.store(y, tile[:, nl.ds(at, 1)])
                      return y
                """,
                says="scalar_load: reads a tile that nothing wrote",
                gives="x[:, 5:6]",
                at="scalar_load",
            ),
        ),
    ),
)
