"""Rules on the launch, two cores at work together, arguments and results of a kernel."""

from nkismith.verify.simulator.legality.rules.rule import Rule

RULES = (
    Rule(
        "launch",
        what="A kernel is launched on one or two cores, along one axis; exchanges between cores need two.",
        why="A logical core has one or two physical ones.",
        fix="Launch with kernel[1] or kernel[2].",
        source="lnc",
    ),
    Rule(
        "core_number",
        what="The cores of a launch are 0 and 1; a barrier names both. With one core it may also name core 0 alone.",
        why="A logical core has no others.",
        fix="Compute the other core as 1 - nl.program_id(0).",
        source="nki.isa.sendrecv, nki.isa.core_barrier",
    ),
    Rule(
        "core_race",
        what="Between two meetings (barrier or exchange) a core leaves alone what the other writes or reads in shared "
        "HBM; both may write the same bytes and read their own.",
        why="The cores run at their own pace: the result would depend on who is first.",
        fix="Put nisa.core_barrier between the write and the read.",
        source="lnc; nki.isa.core_barrier",
    ),
    Rule(
        "deadlock",
        what="Both cores execute the same exchanges and barriers in the same order.",
        why="Each waits for the other.",
        fix="Keep them out of branches on nl.program_id, and use equal pipe_id on both sides.",
        source="nki.isa.sendrecv, nki.isa.core_barrier",
    ),
    Rule(
        "sendrecv_size",
        what="An exchange through gpsimd_dma moves at most 1024 bytes a partition of 4-byte elements, 512 of 2-byte "
        "and 256 of 1-byte ones.",
        why="GpSimdE's own DMA moves 256 elements of a partition.",
        fix="Split it, or use dma_engine.dma.",
        source="nki.isa.sendrecv",
    ),
    Rule(
        "shared_hbm_mismatch",
        what="Both cores declare a shared HBM tensor with one shape and dtype, in the same order.",
        why="It is one tensor: matched by name, else by order.",
        fix="Allocate shared tensors outside branches on nl.program_id.",
        source="lnc",
    ),
    Rule(
        "output_mismatch",
        what="Both cores return the same tensors.",
        why="The kernel has one result.",
        fix="Return the same shared_hbm tensors from both.",
        source="lnc",
    ),
    Rule(
        "output_memory",
        what="A kernel returns tensors of nl.shared_hbm, or its inputs.",
        why="Nothing on chip outlives the kernel, and private HBM belongs to one core.",
        fix="Allocate the result with buffer=nl.shared_hbm and store into it.",
        source="nki.language.ndarray",
    ),
    Rule(
        "output_type",
        what="A kernel returns a tensor, a tuple of tensors, or nothing.",
        why="What else Python computes is gone once the kernel is built.",
        fix="Return tensors.",
        source="nki.jit",
    ),
    Rule(
        "argument_list",
        what="Arguments contain no lists.",
        why="A kernel is kept for its arguments, which therefore may not change.",
        fix="Pass a tuple.",
        source="nki-migration",
    ),
    Rule(
        "nested_config",
        what="A kernel called from a kernel has the same compile_config.",
        why="It is built as a part of the outer one, which has one configuration.",
        fix="Give both the same, or set allow_nested_config_override on the outer one.",
        source="nki.compiler",
    ),
)
