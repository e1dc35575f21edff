"""Rules on what a kernel takes and gives."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

_POISON = "not defined by the documentation; what the memory holds differs from run to run"

RULES = (
    Rule(
        "argument_list",
        what="Arguments contain no lists.",
        why="A kernel is kept for its arguments, which therefore may not change.",
        fix="Pass a tuple.",
        source="nki-migration",
        examples=(
            Example(
                """
                  @nki.jit
                - def kernel(x, factors=[2.0, 3.0]):
                + def kernel(x, factors=(2.0, 3.0)):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      for factor in factors:
                          nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
                      nl.store(y, tile)
                      return y
                """,
                says="the default of factors is a list",
                gives="6 * x",
                at="@nki.jit",
            ),
        ),
    ),
    Rule(
        "output_memory",
        what="A kernel returns tensors of nl.shared_hbm, or its inputs.",
        why="Nothing on chip outlives the kernel, and private HBM belongs to one core.",
        fix="Allocate the result with buffer=nl.shared_hbm and store into it.",
        source="nki.language.ndarray",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                -     y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
                +     y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      nl.store(y, nl.load(x))
                      return y
                """,
                says="output 't1' lives in private_hbm",
                gives="x",
            ),
        ),
    ),
    Rule(
        "output_type",
        what="A kernel returns a tensor, a tuple of tensors, or nothing.",
        why="What else Python computes is gone once the kernel is built.",
        fix="Return tensors.",
        source="nki.jit",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      nl.store(y, nl.load(x))
                -     return y, x.shape[0]
                +     return y, x
                """,
                says="the kernel returned int",
                gives="x, x",
                at="@nki.jit",
            ),
        ),
    ),
    Rule(
        "output_mismatch",
        what="Both cores return the same tensors.",
        why="The kernel has one result.",
        fix="Return the same shared_hbm tensors from both.",
        source="lnc",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      z = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      nl.store((y, z)[nl.program_id(0)], nl.load(x))
                -     return (y, z)[nl.program_id(0)]
                +     return y, z
                """,
                says="core 0 returns t1, core 1 t2",
                gives="x, x",
                lnc=2,
                at="@nki.jit",
            ),
        ),
    ),
    Rule(
        "unwritten_output",
        what="Every element of a result has been computed from written data.",
        why="What else it holds is arbitrary. Unwritten lanes may flow through instructions, but not into a result. "
        "Elements that no instruction touched are refused in a draft; nki.simulate returns NaN there, with a warning.",
        fix="Write every element, the last partial tile too, or return a view of the part that is written.",
        source=_POISON,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.dma_copy(dst=tile[:, 0:7], src=x[:, 0:7])
                +     nisa.dma_copy(dst=tile[:, 0:8], src=x[:, 0:8])
                      nisa.activation(dst=tile, op=nl.exp, data=tile)
                      nl.store(y, tile)
                      return y
                """,
                says="t1: 4 of 32 elements, first at [0, 7], come from data that nothing wrote",
                gives="np.exp(x)",
                at="y = nl.ndarray",
            ),
        ),
    ),
    Rule(
        "nested_config",
        what="A kernel called from a kernel has the same compile_config.",
        why="It is built as a part of the outer one, which has one configuration.",
        fix="Give both the same, or set allow_nested_config_override on the outer one.",
        source="nki.compiler",
        examples=(
            Example(
                """
                  from nki.compiler import CompileConfig

                - @nki.jit(compile_config=CompileConfig(prefetch_auto=True))
                + @nki.jit(compile_config=CompileConfig(prefetch_auto=False))
                  def inner(tile):
                      nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      inner(tile)
                      nl.store(y, tile)
                      return y
                """,
                says="nested kernel inner has another compile_config than the kernel that calls it",
                gives="x + 1",
                at="    inner(tile)",
            ),
        ),
    ),
)
