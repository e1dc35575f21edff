"""Rules on what is passed to an instruction: names, kinds, dtypes, shapes, engines, targets, releases."""

from nkismith.verify.simulator.legality.rules.rule import Rule

_PAGES = "the page of each instruction of nki.isa"

RULES = (
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
    ),
    Rule(
        "operand_type",
        what="A parameter gets the kind of value it takes: a tile, a number, or a value known while building.",
        why="Each field of an instruction is either an address or a constant.",
        fix="Pass a tile made by nl.ndarray where a tensor is asked for; fill a tile with nisa.memset for a constant.",
        source=_PAGES,
    ),
    Rule(
        "operand_count",
        what="nisa.dma_compute adds 1 to 16 sources.",
        why="A descriptor of the computing DMA names that many.",
        fix="Add in several steps.",
        source="nki.isa.dma_compute",
    ),
    Rule(
        "operand_rank",
        what="An operand has no more dimensions than its instruction encodes, the partition dimension included.",
        why="An instruction has room for a few pairs of stride and count.",
        fix="Flatten dimensions that lie one behind the other with .reshape, or loop over one.",
        source="release note 0.7.0",
    ),
    Rule(
        "operand_shapes",
        what="Operands that are worked on together have matching shapes: element by element equal partitions and equal "
        "elements a partition, otherwise as the instruction's page says.",
        why="Lane i works on partition i of every operand, one element after the other.",
        fix="Slice both to one extent, the last partial tile too; .broadcast or a (P, 1) operand repeats values.",
        source=_PAGES,
    ),
    Rule(
        "operand_bounds",
        what="The access pattern of an operand stays inside its tensor.",
        why="The address is computed without a check; it would reach other data.",
        fix="Check offset + sum(stride * (count - 1)) of .ap against the elements a partition.",
        source="nki-aps",
    ),
    Rule(
        "vector_shape",
        what="A per-partition operand (bias, scale, operand0, ...) is a number or a (P, 1) tile with the partitions "
        "of the data.",
        why="Each lane reads one value for its partition.",
        fix="Slice one column, tile[:, i:i+1]; nisa.tensor_tensor takes whole tiles.",
        source=_PAGES,
    ),
    Rule(
        "free_size",
        what="The elements a partition are as many as the instruction takes: a range, or a multiple.",
        why="The instruction works on groups of a fixed size, or holds a row in registers of its own.",
        fix="Tile or pad the free dimension.",
        source=_PAGES,
    ),
    Rule(
        "dtype",
        what="An operand has a dtype that its instruction takes; bit-wise operators take integers of one size, moves "
        "that do not convert take one dtype on both sides.",
        why="Engines convert to float32 and back for arithmetic, and otherwise only pass bits on.",
        fix="Cast with nisa.tensor_copy into a tile of the wanted dtype, or reinterpret the bits with .view(dtype).",
        source="nki.api.shared (data types); " + _PAGES,
    ),
    Rule(
        "two_psum_inputs",
        what="An instruction of VectorE with two tensor inputs reads at most one of them from PSUM.",
        why="It has one read port to PSUM.",
        fix="Copy one to SBUF with nisa.tensor_copy.",
        source="nki.isa.tensor_tensor",
    ),
    Rule(
        "gpsimd_psum",
        what="Nothing that runs on GpSimdE has an operand in PSUM.",
        why="GpSimdE is not connected to PSUM.",
        fix="Copy to SBUF first, or choose engine=nki.isa.engine.vector.",
        source="trainium2_arch",
    ),
    Rule(
        "engine",
        what="The chosen engine can run the instruction, on this target and with these options.",
        why="Each engine implements a part of the instruction set.",
        fix="Leave engine out, or choose one that the message lists.",
        source=_PAGES,
    ),
    Rule(
        "target",
        what="The instruction, operator, dtype or kind of address exists on the target.",
        why="Later generations of Trainium have more than earlier ones.",
        fix="Compose it from instructions that the target has, or build for the target that has it.",
        source=_PAGES,
    ),
    Rule(
        "enum_value",
        what="An option that is an enumeration gets a member of it.",
        why="Integers and names are not accepted since NKI 0.3.",
        fix="Write the member, such as nki.isa.reduce_cmd.reset_reduce.",
        source="nki-migration",
    ),
    Rule(
        "later_parameter",
        what="A call uses only parameters that the chosen SDK has.",
        why="The parameter came with a later release.",
        fix="Leave it out, or build for the SDK that the message names.",
        source="release notes of nki",
    ),
    Rule(
        "call_parameters",
        what="A call of nki.isa or nki.language passes what the function asks for, and no parameter that it lacks.",
        why="Unknown keywords are errors since NKI 0.2; masks and dtypes of results went with the first API.",
        fix="Slice instead of masking, give the dtype to the destination, and see the page of the function.",
        source=_PAGES,
    ),
    Rule(
        "no_instruction",
        what="A function of nki.language has instructions behind it.",
        why="The hardware has no such operation, and the compiler refuses the call.",
        fix="Write the formula that the message gives.",
        source="nki.language",
    ),
    Rule(
        "tensor_operator",
        what="Tensors are not combined with Python's operators.",
        why="An operator could not say which engine works or where the result goes.",
        fix="Call nisa.tensor_tensor or nisa.tensor_scalar with a dst, or a function of nki.language.",
        source="nki-language-guide",
    ),
)
