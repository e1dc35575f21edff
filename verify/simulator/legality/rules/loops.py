"""Rules on compiled loops, the order of instructions, and how much of both there may be."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule
from nkismith.verify.simulator.trace import MAX_NESTING

RULES = (
    Rule(
        "loop_bound",
        what="The bounds of a compiled loop are ints of 32 bits, run-time scalars or registers. A loop may have no "
        "iteration, as Python's range.",
        why="The sequencer compares a register with them.",
        fix="Load the value from the tile with nisa.scalar_load.",
        source="nki.language.fori_loop",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, count = nl.load(x), nl.load(n)

                      def double(i):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

                -     nl.fori_loop(0, count, double)
                +     nl.fori_loop(0, nisa.scalar_load(count), double)
                      nl.store(y, tile)
                      return y
                """,
                says="a loop bound of type NkiTensor",
                gives="x * 8",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "loop_step",
        what="The step of a compiled loop is a positive integer of 32 bits known while building.",
        why="It is a constant of the loop instruction.",
        fix="Count up and compute the offset from the index.",
        source="nki.language.fori_loop",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)

                      def double(i):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

                -     nl.fori_loop(3, 0, double, step=-1)
                +     nl.fori_loop(0, 3, double, step=1)
                      nl.store(y, tile)
                      return y
                """,
                says="step -1",
                gives="x * 8",
            ),
        ),
    ),
    Rule(
        "while_condition",
        what="The condition of nl.while_loop is a run-time scalar or a register, and the body returns the next one.",
        why="The sequencer tests a register for zero.",
        fix="Start from a loaded value and return the next one from the body.",
        source="nki.language.while_loop",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, count = nl.load(x), nisa.scalar_load(n)

                      def double(left):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
                          return left - 1

                -     nl.while_loop(3, double)
                +     nl.while_loop(count, double)
                      nl.store(y, tile)
                      return y
                """,
                says="int as the condition of a while_loop",
                gives="x * 8",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "loop_scope",
        what="A tile made in the body of a compiled loop is used there only.",
        why="The body exists once: after the loop the tile's memory has other owners.",
        fix="Allocate the tile before the loop.",
        source="nki-dynamic-loops",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, kept = nl.load(x), []

                      def double(i):
                          twice = nl.add(tile, tile)
                          kept.append(twice)
                          nisa.tensor_copy(dst=tile, src=twice)

                      nl.fori_loop(0, 3, double)
                -     nl.store(y, kept[0])
                +     nl.store(y, tile)
                      return y
                """,
                says="'t3' (4, 8) was made in the body of a compiled loop and is used outside it",
                gives="x * 8",
            ),
        ),
    ),
    Rule(
        "loop_in_no_reorder",
        what="nl.no_reorder contains no compiled loop.",
        why="Its order is kept among instructions, and a loop is none.",
        fix="Put nl.no_reorder inside the body.",
        source="how-to-scheduling-apis",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)

                      def double(i):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

                      with nl.no_reorder():
                -         nl.fori_loop(0, 3, double)
                +         for i in range(3):
                +             double(i)
                      nl.store(y, tile)
                      return y
                """,
                says="a compiled loop inside nl.no_reorder",
                gives="x * 8",
            ),
        ),
    ),
    Rule(
        "depends_on_loop",
        what="depends_on joins instructions of one loop body, or waits for a producer further out.",
        why="A semaphore counts once for each execution of both.",
        fix="Wire instructions of the same body.",
        source="nki.isa.NkiInstruction",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      outside = nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
                      inside = []

                      def double(i):
                          step = nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
                          inside.append(step.depends_on(outside))

                      nl.fori_loop(0, 3, double)
                      last = nisa.dma_copy(dst=y, src=tile)
                -     last.depends_on(inside[0])
                +     last.depends_on(outside)
                      return y
                """,
                says="a dependency that crosses a compiled loop",
                gives="(x + 1) * 8",
            ),
        ),
    ),
    Rule(
        "schedule_name",
        what="with_schedule names instructions that the kernel has.",
        why="A misspelt name would silently lose a dependency.",
        fix="Pass name= to the instruction.",
        source="how-to-scheduling-apis",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0, name="add")
                      nisa.dma_copy(dst=y, src=tile, name="store")
                      return y

                - kernel = kernel.with_schedule([("store", "added")])
                + kernel = kernel.with_schedule([("store", "add")])
                """,
                says="with_schedule names 'added', and no instruction has that name",
                gives="x + 1",
                at="@nki.jit",
            ),
        ),
    ),
    Rule(
        "instruction_budget",
        what=f"A kernel records a bounded number of instructions, and nests loops at most {MAX_NESTING} deep.",
        why="Loops over Python ranges are unrolled; programs of millions of instructions do not compile.",
        fix="Roll the outer loop into nl.fori_loop, or process larger tiles; end a recursion.",
        source="a limit of this project",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)

                      def loops(depth):
                          if depth:
                              nl.fori_loop(0, 1, lambda i: loops(depth - 1))
                          else:
                              nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

                -     loops(33)
                +     loops(32)
                      nl.store(y, tile)
                      return y
                """,
                says="loops nest deeper than 32",
                gives="x + 1",
                at="nl.fori_loop",
            ),
        ),
    ),
    Rule(
        "step_budget",
        what="A kernel ends after a bounded number of executed instructions.",
        why="A loop that does not end would hang the device.",
        fix="Check the loop's condition and bound.",
        source="a limit of this project",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)

                      def body(left):
                          nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
                -         return left
                +         return left - 1

                      nl.while_loop(nisa.scalar_load(n), body)
                      nl.store(y, tile)
                      return y
                """,
                says="the kernel executes more than the 1,000",
                gives="x + 3",
                given="x float32 (4, 8); n int32 [[3]]",
                at="nl.while_loop",
            ),
        ),
    ),
    Rule(
        "unbound_scalar",
        what="The timing model knows every loop bound.",
        why="The schedule depends on how often a body runs.",
        fix="Loop to a plain int or to what the integer inputs decide (the spec's control inputs, which a case gives "
        "values to); data that are computed on the device cannot decide how often a loop runs.",
        source="a limit of this project",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)

                      def double(i):
                          nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)

                -     nl.fori_loop(0, nisa.scalar_load(n), double)
                +     nl.fori_loop(0, 3, double)
                      nl.store(y, tile)
                      return y
                """,
                says="the upper bound of the loop is a run-time scalar without a value",
                gives="x * 8",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
)
