"""What a kernel may name: default-deny lists of modules, builtins and attributes."""

import math

NKI_MODULES = frozenset(
    {
        "nki",
        "nki.isa",
        "nki.isa.constants",
        "nki.language",
        "nki.collectives",
        "nki.compiler",
        "nki.typing",
        "nki.dtype",
    }
)
# What of the standard library a kernel can use and cannot escape by. Left out: what evaluates text
# (get_type_hints, make_dataclass), copies objects behind our back (asdict), or is a module again (enum.sys).
STDLIB: dict[str, frozenset[str]] = {
    "__future__": frozenset({"annotations"}),
    "math": frozenset(name for name in dir(math) if not name.startswith("_")),
    "functools": frozenset({"cache", "cmp_to_key", "lru_cache", "partial", "reduce", "wraps"}),
    "dataclasses": frozenset({"FrozenInstanceError", "InitVar", "KW_ONLY", "dataclass", "field", "fields", "replace"}),
    "enum": frozenset(
        {"Enum", "Flag", "IntEnum", "IntFlag", "StrEnum", "auto", "member", "nonmember", "property", "unique"}
    ),
    "typing": frozenset(
        {
            *("Annotated", "Any", "Callable", "ClassVar", "Dict", "Final", "Generator", "Generic", "Iterable"),
            *("Iterator", "List", "Literal", "Mapping", "NamedTuple", "Never", "NoReturn", "Optional", "Protocol"),
            *("Self", "Sequence", "Set", "Tuple", "Type", "TypeAlias", "TypeVar", "Union", "cast", "final", "overload"),
        }
    ),
}
# Change the object they are given, so they are for `@` above an own definition only.
DECORATORS_ONLY = frozenset({"dataclasses.dataclass", "enum.unique", "functools.wraps", "typing.final", "nki.jit"})
DECORATORS = DECORATORS_ONLY | {"enum.property", "functools.cache", "functools.lru_cache", "typing.overload"}
BASES = frozenset(
    {
        *("enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "enum.StrEnum"),
        *("nki.NKIObject", "nki.language.NKIObject", "typing.Generic", "typing.NamedTuple", "typing.Protocol"),
    }
)
EXCEPTIONS = frozenset(
    {
        *("ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError"),
        *("NotImplementedError", "OverflowError", "RuntimeError", "StopIteration", "TypeError", "ValueError"),
        "ZeroDivisionError",
    }
)
# Left out, each for a reason its refusal says: looking inside (getattr, vars, type), running text (eval), the outside
# (open, input), and what differs from process to process (id, hash) or from device to simulator (repr, format).
BUILTINS = EXCEPTIONS | {
    *("False", "True", "None", "Ellipsis", "NotImplemented"),
    *("abs", "all", "any", "bin", "bool", "callable", "chr", "classmethod", "complex", "dict", "divmod", "enumerate"),
    *("filter", "float", "frozenset", "hex", "int", "isinstance", "issubclass", "iter", "len", "list", "map", "max"),
    *("min", "next", "object", "oct", "ord", "pow", "print", "property", "range", "reversed", "round", "set", "slice"),
    *("sorted", "staticmethod", "str", "sum", "super", "tuple", "zip"),
}
SPECIAL_METHODS = frozenset(
    {
        *("__init__", "__post_init__", "__call__", "__repr__", "__str__"),
        *("__len__", "__iter__", "__next__", "__contains__", "__getitem__", "__setitem__"),
        *("__neg__", "__pos__", "__abs__", "__invert__"),
        *(
            f"__{side}{name}__"
            for side in ("", "r", "i")
            for name in (
                *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"),
                *("lshift", "rshift", "and", "or", "xor"),
            )
        ),
    }
)
# Class attributes with a meaning to Python that only describe the class.
CLASS_NAMES = frozenset({"__slots__", "__match_args__"})

# Attributes of the objects that NKI hands to a kernel (nki.language and nki.isa of NKI 0.7: NkiTensor, the grids,
# NkiScalar, NkiInstruction, tile_size, the enumerations).
NKI_ATTRIBUTES = frozenset(
    {
        *("shape", "strides", "offset", "name", "dtype", "buffer", "ndim", "size", "address", "itemsize"),
        *("slice", "select", "vector_select", "permute", "broadcast", "expand_dim", "squeeze_dim", "reshape"),
        *("reshape_dim", "flatten_dims", "rearrange", "is_contiguous", "is_indirect", "get_pattern", "ap", "view"),
        *("indirect", "reinterpret_cast", "with_schedule", "depends_on"),
        *("data", "tile_shape", "element_shape", "index_step_elements", "is_data_representable", "is_remainder"),
        *("block_shape",),
        *("pmax", "psum_fmax", "psum_bank_fmax", "psum_bank_fmax_bytes", "psum_num_banks", "psum_min_align"),
        *("sbuf_min_align", "gemm_stationary_fmax", "gemm_moving_fmax", "bn_stats_fmax", "sbuf_size_bytes"),
        *("sbuf_fmax", "sbuf_fmax_bytes", "total_available_sbuf_size"),
        *("unknown", "tensor", "scalar", "gpsimd", "dma", "vector", "sync", "gpsimd_dma"),
        *("idle", "reset", "reduce", "reset_reduce", "load_reduce", "swdge", "hwdge", "none", "error", "skip"),
        *("double_row", "gen2", "gen3", "gen4", "sbuf", "psum", "hbm", "private_hbm", "shared_hbm"),
        *("AUTO", "ENABLE", "DISABLE"),
    }
)
_CONTAINERS: tuple[type, ...] = (list, dict, set, frozenset, tuple, str, int, float, complex, range, slice)
# Attributes of Python's own values; `format` reads attributes named in text, which no rule could see.
PYTHON_ATTRIBUTES = frozenset(
    {name for kind in _CONTAINERS for name in dir(kind) if not name.startswith("_")}
    | {"value", "name", "func", "args", "keywords", "_replace", "_asdict", "_fields", "default"}
) - {"format", "format_map"}
