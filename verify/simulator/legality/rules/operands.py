"""Rules on the tensors and numbers that are passed to an instruction: which, of what kind, shape, extent and dtype."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

_PAGES = "the page of each instruction of nki.isa"

RULES = (
    Rule(
        "call_parameters",
        what="A call of nki.isa or nki.language passes what the function asks for, and no parameter that it lacks.",
        why="Unknown keywords are errors since NKI 0.2; masks and dtypes of results went with the first API.",
        fix="Slice instead of masking, give the dtype to the destination, and see the page of the function.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.activation(dst=tile, op=nl.exp, data=tile, dtype=nl.float32)
                +     nisa.activation(dst=tile, op=nl.exp, data=tile)
                      nl.store(y, tile)
                      return y
                """,
                says="activation() got an unexpected keyword argument 'dtype'",
                gives="np.exp(x)",
            ),
        ),
    ),
    Rule(
        "operand_name",
        what="The tensors of an instruction belong to parameters that it has.",
        why="A recorded program from outside is checked like one recorded here.",
        fix="Call the instruction through nki.isa, with the parameters of its page.",
        source=_PAGES,
    ),
    Rule(
        "operand_missing",
        what="Every operand that the chosen operators and options need is given.",
        why="The instruction has no value to take in its place.",
        fix="Pass a tile, a (P, 1) column or a number, as the message names it.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add)
                +     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_scalar: add without operand1",
                gives="2 * x + 1",
            ),
        ),
    ),
    Rule(
        "operand_type",
        what="A parameter gets the kind of value it takes: a tile, a number, or a value known while building.",
        why="Each field of an instruction is either an address or a constant.",
        fix="Pass a tile made by nl.ndarray where a tensor is asked for; fill a tile with nisa.memset for a constant.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.tensor_tensor(dst=tile, data1=tile, data2=2.0, op=nl.add)
                +     nisa.tensor_scalar(dst=tile, data=tile, operand0=2.0, op0=nl.add)
                      nl.store(y, tile)
                      return y
                """,
                says="nisa.tensor_tensor: data2 is float, not a tensor",
                gives="x + 2",
            ),
        ),
    ),
    Rule(
        "operand_count",
        what="nisa.dma_compute adds 1 to 16 sources.",
        why="A descriptor of the computing DMA names that many.",
        fix="Add in several steps.",
        source="nki.isa.dma_compute",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     nisa.dma_compute(dst=y, srcs=[x] * 17, reduce_op=nl.add)
                +     nisa.dma_compute(dst=y, srcs=[x] * 16, reduce_op=nl.add)
                      return y
                """,
                says="dma_compute: 17 sources",
                gives="16 * x",
            ),
        ),
    ),
    Rule(
        "operand_rank",
        what="An operand has no more dimensions than its instruction encodes, the partition dimension included.",
        why="An instruction has room for a few pairs of stride and count.",
        fix="Flatten dimensions that lie one behind the other with .reshape, or loop over one.",
        source="release note 0.7.0",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, top = nl.load(x), nl.ndarray((x.shape[0], 8), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.max8(dst=top, src=tile.reshape((x.shape[0], 4, 2, 2)))
                +     nisa.max8(dst=top, src=tile.reshape((x.shape[0], 4, 4)))
                      nl.store(y, top)
                      return y
                """,
                says="max8: src is (4, 4, 2, 2)",
                gives="np.sort(x)[:, :-9:-1]",
                given="x float32 (4, 16)",
            ),
        ),
    ),
    Rule(
        "operand_shapes",
        what="Operands that are worked on together have matching shapes: element by element equal partitions and equal "
        "elements a partition, otherwise as the instruction's page says.",
        why="Lane i works on partition i of every operand, one element after the other.",
        fix="Slice both to one extent, the last partial tile too; .broadcast or a (P, 1) operand repeats values.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      a, b = nl.load(x), nl.load(x)
                -     nisa.tensor_tensor(dst=a, data1=a, data2=b[:, 0:7], op=nl.add)
                +     nisa.tensor_tensor(dst=a, data1=a, data2=b.reshape((4, 2, 4)), op=nl.add)
                      nl.store(y, a)
                      return y
                """,
                says="tensor_tensor: dst is (4, 8) and data2 is (4, 7)",
                gives="x + x",
            ),
        ),
    ),
    Rule(
        "operand_bounds",
        what="The access pattern of an operand stays inside its tensor.",
        why="The address is computed without a check; it would reach other data.",
        fix="Check offset + sum(stride * (count - 1)) of .ap against the elements a partition.",
        source="nki-aps",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      odd = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.tensor_copy(dst=odd, src=tile.ap([[8, 4], [2, 4]], offset=2))
                +     nisa.tensor_copy(dst=odd, src=tile.ap([[8, 4], [2, 4]], offset=1))
                      nl.store(y, odd)
                      return y
                """,
                says="tensor_copy: src reaches elements 2 .. 8 of 8",
                gives="x[:, 1::2]",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      turned = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.tensor_copy(dst=turned, src=tile.ap([[8, 4], [-1, 8]], offset=6))
                +     nisa.tensor_copy(dst=turned, src=tile.ap([[8, 4], [-1, 8]], offset=7))
                      nl.store(y, turned)
                      return y
                """,
                says="tensor_copy: src reaches elements -1 .. 6 of 8",
                gives="x[:, ::-1]",
            ),
        ),
    ),
    Rule(
        "vector_shape",
        what="A per-partition operand (bias, scale, operand0, ...) is a number or a (P, 1) tile with the partitions "
        "of the data.",
        why="Each lane reads one value for its partition.",
        fix="Slice one column, tile[:, i:i+1]; nisa.tensor_tensor takes whole tiles.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      a, b = nl.load(x), nl.load(x)
                -     nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=b[:, 0:2])
                +     nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=b[:, 0:1])
                      nl.store(y, a)
                      return y
                """,
                says="tensor_scalar: operand0 is (4, 2)",
                gives="x * x[:, 0:1]",
            ),
        ),
    ),
    Rule(
        "free_size",
        what="The elements a partition are as many as the instruction takes: a range, or a multiple.",
        why="The instruction works on groups of a fixed size, or holds a row in registers of its own.",
        fix="Tile or pad the free dimension.",
        source=_PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 2), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      parts = nl.ndarray((x.shape[0], 6), dtype=nl.float32, buffer=nl.sbuf)
                      both = nl.ndarray((x.shape[0], 2), dtype=nl.float32, buffer=nl.sbuf)
                -     nisa.bn_stats(dst=parts, data=tile[:, 0:513])
                +     nisa.bn_stats(dst=parts, data=tile[:, 0:512])
                      nisa.bn_aggr(dst=both, data=parts)
                      nl.store(y, both)
                      return y
                """,
                says="bn_stats: data has 513 elements a partition",
                gives="np.stack([x[:, :512].mean(axis=1), x[:, :512].var(axis=1)], axis=1)",
                given="x float32 (4, 600)",
            ),
        ),
    ),
    Rule(
        "dtype",
        what="An operand has a dtype that its instruction takes; bit-wise operators take integers of one size, moves "
        "that do not convert take one dtype on both sides.",
        why="Engines convert to float32 and back for arithmetic, and otherwise only pass bits on.",
        fix="Cast with nisa.tensor_copy into a tile of the wanted dtype, or reinterpret the bits with .view(dtype).",
        source="nki.api.shared (data types); " + _PAGES,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      bits = tile.view(nl.int32)
                -     nisa.tensor_scalar(dst=bits, data=tile, op0=nl.bitwise_and, operand0=0x7FFFFFFF)
                +     nisa.tensor_scalar(dst=bits, data=bits, op0=nl.bitwise_and, operand0=0x7FFFFFFF)
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_scalar: data is float32 under a bit-wise operator",
                gives="np.abs(x)",
            ),
        ),
    ),
    Rule(
        "two_psum_inputs",
        what="An instruction of VectorE with two tensor inputs reads at most one of them from PSUM.",
        why="It has one read port to PSUM.",
        fix="Copy one to SBUF with nisa.tensor_copy.",
        source="nki.isa.tensor_tensor",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      acc = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
                      nisa.tensor_copy(dst=acc, src=tile)
                -     nisa.tensor_tensor(dst=tile, data1=acc, data2=acc, op=nl.multiply)
                +     nisa.tensor_tensor(dst=tile, data1=acc, data2=tile, op=nl.multiply)
                      nl.store(y, tile)
                      return y
                """,
                says="tensor_tensor: data1 and data2 are both in PSUM",
                gives="x * x",
            ),
        ),
    ),
)
