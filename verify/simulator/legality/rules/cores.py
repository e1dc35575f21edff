"""Rules on the launch and on two cores at work together."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

RULES = (
    Rule(
        "launch",
        what="A kernel is launched on one or two cores, along one axis; exchanges between cores need two.",
        why="A logical core has one or two physical ones.",
        fix="Launch with kernel[1] or kernel[2].",
        source="lnc",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                -     core = nl.program_id(1)
                +     core = nl.program_id(0)
                      nl.store(y[core : core + 1], nl.load(x[core : core + 1]))
                      return y
                """,
                says="axis 1 of the launch grid",
                gives="x[0:2]",
                lnc=2,
            ),
        ),
    ),
    Rule(
        "core_number",
        what="The cores of a launch are 0 and 1; a barrier names both. With one core it may also name core 0 alone.",
        why="A logical core has no others.",
        fix="Compute the other core as 1 - nl.program_id(0).",
        source="nki.isa.sendrecv, nki.isa.core_barrier",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      core = nl.program_id(0)
                -     other = core + 1
                +     other = 1 - core
                      mine, theirs = nl.load(x[core : core + 1]), nl.ndarray((1, 8), dtype=x.dtype, buffer=nl.sbuf)
                      nisa.sendrecv(src=mine, dst=theirs, send_to_rank=other, recv_from_rank=other, pipe_id=0)
                      nl.store(y[core : core + 1], theirs)
                      return y
                """,
                says="sendrecv: send_to_rank=2",
                gives="x[[1, 0]]",
                lnc=2,
                at="sendrecv",
            ),
        ),
    ),
    Rule(
        "core_race",
        what="Between two meetings (barrier or exchange) a core leaves alone what the other writes or reads in shared "
        "HBM; both may write the same bytes and read their own.",
        why="The cores run at their own pace: the result would depend on who is first.",
        fix="Put nisa.core_barrier between the write and the read.",
        source="lnc; nki.isa.core_barrier",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      shared = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      core = nl.program_id(0)
                      nl.store(shared[core : core + 1], nl.load(x[core : core + 1]))
                +     nisa.core_barrier(data=shared, cores=(0, 1))
                      theirs = nl.load(shared[1 - core : 2 - core])
                      nl.store(y[core : core + 1], theirs)
                      return y
                """,
                says="dma_copy: core 1 writes elements of shared HBM tensor 't2' that core 0 has read since "
                "the cores last met",
                gives="x[[1, 0]]",
                lnc=2,
                at="nl.store(shared",
            ),
        ),
    ),
    Rule(
        "deadlock",
        what="Both cores execute the same exchanges and barriers in the same order.",
        why="Each waits for the other.",
        fix="Keep them out of branches on nl.program_id, and use equal pipe_id on both sides.",
        source="nki.isa.sendrecv, nki.isa.core_barrier",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      core = nl.program_id(0)
                      nl.store(y[core : core + 1], nl.load(x[core : core + 1]))
                -     if core == 0:
                +     if core in (0, 1):
                          nisa.core_barrier(data=y, cores=(0, 1))
                      return y
                """,
                says="core 0 waits for the core_barrier on 't1' (line 7); core 1 has ended",
                gives="x[0:2]",
                lnc=2,
                at="core_barrier",
            ),
        ),
    ),
    Rule(
        "sendrecv_size",
        what="An exchange through gpsimd_dma moves at most 1024 bytes a partition of 4-byte elements, 512 of 2-byte "
        "and 256 of 1-byte ones.",
        why="GpSimdE's own DMA moves 256 elements of a partition.",
        fix="Split it, or use dma_engine.dma.",
        source="nki.isa.sendrecv",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((2, 256), dtype=x.dtype, buffer=nl.shared_hbm)
                      core = nl.program_id(0)
                      other = 1 - core
                      mine, theirs = nl.load(x[core : core + 1]), nl.ndarray((1, 260), dtype=x.dtype, buffer=nl.sbuf)
                -     part = slice(0, 257)
                +     part = slice(0, 256)
                      nisa.sendrecv(
                          src=mine[:, part], dst=theirs[:, part], send_to_rank=other, recv_from_rank=other, pipe_id=0,
                          dma_engine=nisa.dma_engine.gpsimd_dma,
                      )
                      nl.store(y[core : core + 1], theirs[:, 0:256])
                      return y
                """,
                says="sendrecv: 1028 bytes a partition through gpsimd_dma",
                gives="x[[1, 0], 0:256]",
                lnc=2,
                given="x float32 (2, 260)",
                at="sendrecv(",
            ),
        ),
    ),
    Rule(
        "shared_hbm_mismatch",
        what="Both cores declare a shared HBM tensor with one shape and dtype, in the same order.",
        why="It is one tensor: matched by name, else by order.",
        fix="Allocate shared tensors outside branches on nl.program_id.",
        source="lnc",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      core = nl.program_id(0)
                -     y = nl.ndarray((1 + core, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                +     y = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      nl.store(y[core : core + 1], nl.load(x[core : core + 1]))
                      return y
                """,
                says="shared HBM tensor 't1' is (2, 8) float32 here and (1, 8) float32 in the other core",
                gives="x[0:2]",
                lnc=2,
            ),
        ),
    ),
)
