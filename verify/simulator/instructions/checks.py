"""Legality rules that several compute instructions share. Each raises through `site.refuse`."""

from nkismith.verify.simulator.dtypes import INTEGERS
from nkismith.verify.simulator.operators import ALU


def check_op(site, name, kinds=("arithmetic", "bitvec", "unary"), reduces=False):
    """The operator of a parameter exists on this target, has an allowed kind, and (if asked) can reduce."""
    op = ALU.get(site.attr(name))
    if op is None:
        raise site.refuse("operator", f"{name}={site.attr(name)!r} is not an ALU operator", "see nki.api.shared")
    if site.target.name not in op.targets:
        raise site.refuse("target", f"{op.name} exists on {', '.join(op.targets)}, not on {site.target.name}", "")
    if op.kind not in kinds:
        raise site.refuse("operator", f"{name}={op.name} is a {op.kind} operator", f"use {' or '.join(kinds)}")
    if reduces and op.identity is None:
        raise site.refuse("operator", f"{op.name} cannot reduce", "add, multiply, maximum, minimum or a bit-wise op")
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


def check_one_psum(site, first, second):
    """VectorE reads at most one of two tensors from PSUM."""
    if site.has(first) and site.has(second) and site.space(first) == site.space(second) == "psum":
        raise site.refuse("two_psum_inputs", f"{first} and {second} are both in PSUM", "copy one to SBUF first")


def check_bitvec_dtypes(site, *names):
    """Bit-wise operators take integers, all of one size."""
    for name in names:
        if site.has(name) and site.dtype(name) not in INTEGERS:
            raise site.refuse("dtype", f"{name} is {site.dtype(name)} under a bit-wise operator", "view it as integers")
