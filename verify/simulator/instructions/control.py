"""Scalars and registers: integers that live on the sequencers. Arithmetic wraps at their width."""

import numpy as np

from nkismith.verify.simulator.dtypes import FLOATS, INTEGERS, PACKED, cast
from nkismith.verify.simulator.hardware import REGISTERS_PER_ENGINE
from nkismith.verify.simulator.instruction import ANY_DTYPE, DMA_MEMORY, PLAIN, instruction, out, tile
from nkismith.verify.simulator.trace import ScalarRef

SCALAR_DTYPES = frozenset({"int32", "int64"})
REGISTER_DTYPES = (ANY_DTYPE | {"int64", "uint64"}) - PACKED
REGISTERS = f"a sequencer has {REGISTERS_PER_ENGINE} registers of 32 bits"


def wrapped(value, dtype):
    """An int as two's complement of the scalar's width."""
    bits = 64 if dtype == "int64" else 32
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def set_scalar(m, site, value):
    """Give the result scalar its value."""
    m.scalars[site.attr("result").id] = wrapped(int(value), site.attr("dtype", "int32"))


def check_one_element(site, name):
    """Scalars and registers move single elements."""
    if site.operand(name).size != 1:
        raise site.refuse("scalar_tile", f"{name} is {site.shape(name)}", "use a tile of one element")


def element(m, site):
    """The one value of src. Raises LegalityError if nothing wrote it."""
    if m._taints["src"] is not None:
        raise site.refuse("unwritten_scalar", "reads a tile that nothing wrote", "write it first")
    return m.view("src").reshape(-1)[0]


def check_words(site, *names):
    """What sequencers compute with: ints and scalars. `result` is a scalar."""
    for name in names:
        if not isinstance(site.attr(name), ScalarRef if name == "result" else int | ScalarRef):
            raise site.refuse("operand_type", f"{name} is {type(site.attr(name)).__name__}", "an int or a scalar")


def _binary(apply):
    return {
        "__doc__": f"Scalar arithmetic: {apply.__doc__}, wrapping at the scalar's width.",
        "named": False,
        "signature": _binary_signature,
        "check": lambda site: check_words(site, "result", "a", "b"),
        "run": lambda m, site: set_scalar(m, site, apply(m.value(site.attr("a")), m.value(site.attr("b")))),
    }


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
        check_one_element(site, "src")
        check_words(site, "result")

    def run(m, site):
        set_scalar(m, site, element(m, site))


@instruction(engines=("sync",), public=False, since="2.33", limits=("a 1x1 tile of the scalar's width",))
class scalar_store:
    """Write a scalar into a 1x1 tile."""

    named = False

    def signature(dst: out(DMA_MEMORY, SCALAR_DTYPES), value: PLAIN): ...

    def check(site):
        check_one_element(site, "dst")
        check_words(site, "value")

    def run(m, site):
        m.view("dst")[...] = np.asarray(m.value(site.attr("value")))


@instruction(engines=("sync",), public=False, limits=(REGISTERS,))
class register_move:
    """Set a register to a constant or to another register's value."""

    named = False

    def signature(src: PLAIN): ...

    def check(site):
        check_words(site, "result", "src")

    def run(m, site):
        m.scalars[site.attr("result").id] = m.value(site.attr("src"))


@instruction(engines=("sync",), public=False, limits=("a tensor of one element", "no packed dtypes", REGISTERS))
class register_load:
    """Read a tensor of one element into a register: 32 bits, or a pair of registers for 64."""

    named = False

    def signature(src: tile(DMA_MEMORY, REGISTER_DTYPES)): ...

    def check(site):
        check_one_element(site, "src")
        check_words(site, "result")

    def run(m, site):
        value = element(m, site)
        fraction = site.dtype("src") in FLOATS and not float(value).is_integer()
        m.scalars[site.attr("result").id] = float(value) if fraction else int(value)


@instruction(engines=("sync",), public=False, limits=("a tensor of one element", "no packed dtypes", REGISTERS))
class register_store:
    """Write a register into a tensor of one element, in the tensor's dtype."""

    named = False

    def signature(dst: out(DMA_MEMORY, REGISTER_DTYPES), src: PLAIN): ...

    def check(site):
        check_one_element(site, "dst")
        check_words(site, "src")

    def run(m, site):
        dtype, value = site.dtype("dst"), m.value(site.attr("src"))
        stored = np.asarray(value, np.int64 if isinstance(value, int) and dtype in INTEGERS else np.float32)
        m.view("dst")[...] = cast(stored.reshape(1), dtype)[0]


@instruction(engines=("dma",), public=False, limits=("a tensor in SBUF or HBM",))
class device_print:
    """Print a prefix and the values of a tile."""

    named = False

    def signature(tensor: tile(DMA_MEMORY, REGISTER_DTYPES | PACKED), prefix: PLAIN): ...

    def run(m, site):
        if m.console is not None:
            m.console(f"{site.attr('prefix')}\n{m.view('tensor')}")
