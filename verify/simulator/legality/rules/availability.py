"""Rules on what exists: on an engine, on a target, in a release of the SDK, in the API at all."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

_PAGES = "the page of each instruction of nki.isa"

RULES = (
    Rule(
        "gpsimd_psum",
        what="Nothing that runs on GpSimdE has an operand in PSUM.",
        why="GpSimdE is not connected to PSUM.",
        fix="Copy to SBUF first, or choose engine=nki.isa.engine.vector.",
        source="trainium2_arch",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      acc = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
                -     nisa.tensor_copy(dst=acc, src=nl.load(x), engine=nisa.engine.gpsimd)
                +     nisa.tensor_copy(dst=acc, src=nl.load(x), engine=nisa.engine.vector)
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="tensor_copy: dst is in PSUM, which GpSimdE cannot reach",
                gives="x",
            ),
        ),
    ),
    Rule(
        "engine",
        what="The chosen engine can run the instruction, on this target and with these options.",
        why="Each engine implements a part of the instruction set.",
        fix="Leave engine out, or choose one that the message lists.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add, engine=nisa.engine.scalar)
                +     nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add, engine=nisa.engine.gpsimd)
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_tensor: cannot run on scalar",
                gives="x + x",
            ),
        ),
    ),
    Rule(
        "target",
        what="The instruction, operator, dtype or kind of address exists on the target.",
        why="Later generations of Trainium have more than earlier ones.",
        fix="Compose it from instructions that the target has, or build for the target that has it.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.exponential(dst=tile, src=tile)
                +     nisa.activation(dst=tile, op=nl.exp, data=tile)
                      nl.store(y, tile)
                      return y
                """,
                says="exponential: exists on trn3, not on trn2",
                gives="np.exp(x)",
            ),
        ),
    ),
    Rule(
        "enum_value",
        what="An option that is an enumeration gets a member of it.",
        why="Integers and names are not accepted since NKI 0.3.",
        fix="Write the member, such as nki.isa.reduce_cmd.reset_reduce.",
        source="nki-migration",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.memset(dst=tile, value=2.0, engine="vector")
                +     nisa.memset(dst=tile, value=2.0, engine=nisa.engine.vector)
                      nl.store(y, tile)
                      return y
                """,
                says="nisa.memset: engine='vector'",
                gives="np.full(x.shape, 2.0)",
            ),
        ),
    ),
    Rule(
        "later_parameter",
        what="A call uses only parameters that the chosen SDK has.",
        why="The parameter came with a later release.",
        fix="Leave it out, or build for the SDK that the message names.",
        source="release notes of nki",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.activation(dst=tile, op=nl.exp, data=tile, engine=nisa.engine.scalar)
                +     nisa.activation(dst=tile, op=nl.exp, data=tile)
                      nl.store(y, tile)
                      return y
                """,
                says="nki.isa.activation has no parameter engine in SDK 2.32",
                gives="np.exp(x)",
                sdk="2.32",
            ),
        ),
    ),
    Rule(
        "no_instruction",
        what="A function of nki.language has instructions behind it.",
        why="The hardware has no such operation, and the compiler refuses the call.",
        fix="Write the formula that the message gives.",
        source="nki.language",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, z):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      a, b = nl.load(x), nl.load(z)
                -     nl.store(y, nl.divide(a, b))
                +     nl.store(y, nl.multiply(a, nl.reciprocal(b)))
                      return y
                """,
                says="nl.divide: the hardware does not divide",
                gives="x / z",
                given="x float32 (4, 8); z float32 (4, 8)",
            ),
        ),
    ),
    Rule(
        "tensor_operator",
        what="Tensors are not combined with Python's operators.",
        why="An operator could not say which engine works or where the result goes.",
        fix="Call nisa.tensor_tensor or nisa.tensor_scalar with a dst, or a function of nki.language.",
        source="nki-language-guide",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y, tile + tile)
                +     nl.store(y, nl.add(tile, tile))
                      return y
                """,
                says="the Python operator + on a tensor",
                gives="x + x",
            ),
        ),
    ),
)
