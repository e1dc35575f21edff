"""Legality rules that several compute instructions share. Each raises through `site.refuse`."""

from nkismith.verify.simulator.dtypes import INTEGERS, ITEMSIZE
from nkismith.verify.simulator.instruction import Tile
from nkismith.verify.simulator.operators import ALU

FLOAT_VECTOR = frozenset({"float32"})


def check_op(site, name, kinds=("arithmetic", "bitvec", "unary"), reduces=False, among=None):
    """The operator of a parameter exists on this target, has an allowed kind, and (if asked) can reduce."""
    op = ALU.get(site.attr(name))
    if op is None:
        raise site.refuse("operator", f"{name}={site.attr(name)!r} is not an ALU operator", "see nki.api.shared")
    if site.target.name not in op.targets:
        raise site.refuse(
            "target", f"{op.name} exists on {', '.join(op.targets)}, not on {site.target.name}", "compose it"
        )
    if op.kind not in kinds:
        raise site.refuse("operator", f"{name}={op.name} is a {op.kind} operator", f"use {' or '.join(kinds)}")
    if reduces and not op.reduces:
        raise site.refuse("operator", f"{op.name} cannot reduce", "add, multiply, maximum, minimum or a bit-wise op")
    if among is not None and op.name not in among:
        raise site.refuse("operator", f"{name}={op.name}", f"one of {', '.join(among)}")
    return op


def check_same_elements(site, *names):
    """Equal partitions and elements a partition."""
    first = names[0]
    for name in names[1:]:
        if (site.partitions(name), site.free(name)) != (site.partitions(first), site.free(first)):
            raise site.refuse(
                "operand_shapes",
                f"{first} is {site.shape(first)} and {name} is {site.shape(name)}",
                "give both the same partitions and elements a partition",
            )


def check_vectors(site, like):
    """Per-partition operands have the partitions of `like`."""
    for name, kind in site.definition.params.items():
        if isinstance(kind, Tile) and kind.vector and site.has(name):
            check_column(site, name, like)


def check_column(site, name, like):
    """A tensor is (P, 1) with the partitions of `like`."""
    if site.has(name) and (site.partitions(name), site.free(name)) != (site.partitions(like), 1):
        raise site.refuse(
            "vector_shape", f"{name} is {site.shape(name)}", f"({site.partitions(like)}, 1) as {like} has"
        )


def check_one_psum(site, first, second):
    """VectorE reads at most one of two tensors from PSUM."""
    if site.has(first) and site.has(second) and site.space(first) == site.space(second) == "psum":
        raise site.refuse("two_psum_inputs", f"{first} and {second} are both in PSUM", "copy one to SBUF first")


def check_rank(site, limit, *names):
    """Operands have at most `limit` dimensions, the partition dimension included."""
    for name in names:
        if site.has(name) and len(site.shape(name)) > limit:
            raise site.refuse(
                "operand_rank", f"{name} is {site.shape(name)}", f"at most {limit} dimensions: flatten some, or loop"
            )


def check_free(site, name, low, high):
    """Elements a partition of an operand lie in low .. high."""
    if not low <= site.free(name) <= high:
        raise site.refuse("free_size", f"{name} has {site.free(name)} elements a partition", f"{low} to {high}")


def check_bitvec_dtypes(site, *names):
    """Bit-wise operators take integers, all of one size: they see bit patterns and cast nothing."""
    given = [n for n in names if site.has(n)]
    for name in given:
        if site.dtype(name) not in INTEGERS:
            raise site.refuse("dtype", f"{name} is {site.dtype(name)} under a bit-wise operator", "view it as integers")
    if len({ITEMSIZE[site.dtype(n)] for n in given}) > 1:
        seen = ", ".join(f"{n} {site.dtype(n)}" for n in given)
        raise site.refuse("dtype", f"{seen} under a bit-wise operator", "integers of one size: cast with tensor_copy")


def check_same_dtype(site, first, second):
    """Two tensors have one dtype."""
    if site.dtype(first) != site.dtype(second):
        raise site.refuse(
            "dtype", f"{first} is {site.dtype(first)} and {second} is {site.dtype(second)}", "give both one dtype"
        )


def check_unary_operand(site, op, operand):
    """The operand of a unary operator is absent or 0."""
    if (op.kind == "unary" or op.name == "invert") and (site.has(operand) or site.attr(operand) not in (None, 0)):
        raise site.refuse("unary_operand", f"{op.name} takes no {operand}", f"{operand}=None or 0")
