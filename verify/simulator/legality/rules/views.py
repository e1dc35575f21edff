"""Rules on views of tensors, indices known while building, and grids of tiles."""

from nkismith.verify.simulator.legality.rules.rule import Rule

_TENSOR = "nki.language.NkiTensor"

RULES = (
    Rule(
        "index_bounds",
        what="An index or slice known while building stays inside the dimension and selects at least one element.",
        why="Slices are not shortened as NumPy does: the address would be computed as it stands.",
        fix="Clamp the last tile: size = min(step, n - start).",
        source="nki-language-guide",
    ),
    Rule(
        "index_type",
        what="A tensor is indexed with ints, slices, Ellipsis, nl.ds or a run-time scalar.",
        why="An access is a pattern of strides and counts; lists and masks are none.",
        fix="Gather with .vector_select, .indirect or a gather instruction.",
        source=_TENSOR,
    ),
    Rule(
        "view_dim",
        what="A view names dimensions that exist, each once where all are named.",
        why="The call has no other meaning.",
        fix="Count dimensions from 0; the partition dimension is 0.",
        source=_TENSOR,
    ),
    Rule(
        "view_partition",
        what="A view of an on-chip tensor leaves the partition dimension where it is and as long as it is.",
        why="Partitions are different memories: no access pattern moves data between them.",
        fix="Transpose with nisa.nc_transpose, broadcast with a matmul or by loading from a repeated source.",
        source=_TENSOR,
    ),
    Rule(
        "partition_stride",
        what="The partitions of an on-chip operand follow each other.",
        why="An engine addresses a first partition and a number of them, without a stride.",
        fix="Keep what belongs together in neighbouring partitions.",
        source="trainium2_arch",
    ),
    Rule(
        "ap_partition",
        what="On chip a pattern of .ap leads with [elements a partition, partitions] and has a free dimension.",
        why="The first pair is the partition dimension, whose stride the hardware fixes.",
        fix="Lead with the pair that the message gives.",
        source="nki-aps",
    ),
    Rule(
        "view_layout",
        what="A view can be written with strides: elements lie where the new shape needs them.",
        why="A view moves nothing; a reshape across a permuted dimension would have to.",
        fix="Copy into a new tile first, or reshape before permuting.",
        source=_TENSOR,
    ),
    Rule(
        "view_size",
        what="A reshaped view has as many elements as the tensor.",
        why="A view moves, drops and adds nothing.",
        fix="Leave one extent as -1, or slice first.",
        source=_TENSOR,
    ),
    Rule(
        "view_broadcast",
        what="Only a dimension of extent 1 is broadcast, to a positive size.",
        why="A stride of 0 repeats one element.",
        fix="Select one element, or add a dimension with .expand_dim.",
        source=_TENSOR,
    ),
    Rule(
        "view_rearrange",
        what="A rearrangement names every dimension once on both sides, and sizes divide the extents they split.",
        why="Otherwise the pattern does not say where each element goes.",
        fix="Give fixed_sizes for all but one name of a group.",
        source=_TENSOR,
    ),
    Rule(
        "transpose_axes",
        what="The axes of a transposition are those that the call takes, one for each dimension.",
        why="DMA transposes whole outer against inner dimensions only; a grid permutes all of its dimensions.",
        fix="Use (1, 0), (2, 1, 0) or (3, 1, 2, 0), or permute the view.",
        source="nki.isa.dma_transpose; nki.language.tiles",
    ),
    Rule(
        "grid_data",
        what=".data of a selection of tiles exists where one access pattern covers it.",
        why="Tiles of several rows may lie apart in a way that strides cannot express.",
        fix="Index one tile or block; .is_data_representable tells beforehand.",
        source="nki.language.NkiGrid",
    ),
    Rule(
        "grid_retile",
        what="A selection of tiles that does not lie densely keeps its tile shape.",
        why="Other tiles would cut through the gaps.",
        fix="Tile the tensor itself, or keep the tiles and group them into blocks.",
        source="nki.language.tiles",
    ),
)
