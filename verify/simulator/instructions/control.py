"""Scalars and registers: integers that live on the sequencers. Arithmetic wraps at their width."""

import numpy as np

from nkismith.verify.simulator.instruction import DMA_MEMORY, PLAIN, instruction, out, tile

INT32 = frozenset({"int32"})
SCALAR_DTYPES = frozenset({"int32", "int64"})


def wrapped(value, dtype):
    """An int as two's complement of the scalar's width."""
    bits = 64 if dtype == "int64" else 32
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def set_scalar(m, site, value):
    """Give the result scalar its value."""
    m.scalars[site.attr("result").id] = wrapped(int(value), site.attr("dtype", "int32"))


def _binary(apply):
    class_body = {
        "__doc__": f"Scalar arithmetic: {apply.__name__}, wrapping at the scalar's width.",
        "named": False,
        "signature": _binary_signature,
        "run": lambda m, site: set_scalar(m, site, apply(m.value(site.attr("a")), m.value(site.attr("b")))),
    }
    return class_body


def _binary_signature(a: PLAIN, b: PLAIN): ...


def add(a, b):
    """a + b"""
    return a + b


def subtract(a, b):
    """a - b"""
    return a - b


def multiply(a, b):
    """a * b"""
    return a * b


for _apply in (add, subtract, multiply):
    instruction(engines=("sync",), public=False)(type(f"scalar_{_apply.__name__}", (), _binary(_apply)))


@instruction(engines=("sync",), public=False, since="2.33", limits=("a 1x1 tile of int32 or int64",))
class scalar_load:
    """Read a 1x1 tile into a scalar."""

    named = False

    def signature(src: tile(DMA_MEMORY, SCALAR_DTYPES)): ...

    def check(site):
        if site.operand("src").size != 1:
            raise site.refuse("scalar_tile", f"src is {site.shape('src')}", "load a 1x1 tile")

    def run(m, site):
        if m._taints["src"] is not None:
            raise site.refuse("unwritten_scalar", "reads a tile that nothing wrote", "write it first")
        set_scalar(m, site, m.view("src").reshape(-1)[0])


@instruction(engines=("sync",), public=False, since="2.33", limits=("a 1x1 tile of the scalar's width",))
class scalar_store:
    """Write a scalar into a 1x1 tile."""

    named = False

    def signature(dst: out(DMA_MEMORY, SCALAR_DTYPES), value: PLAIN): ...

    def check(site):
        if site.operand("dst").size != 1:
            raise site.refuse("scalar_tile", f"dst is {site.shape('dst')}", "store into a 1x1 tile")

    def run(m, site):
        m.view("dst")[...] = np.asarray(m.value(site.attr("value")))
