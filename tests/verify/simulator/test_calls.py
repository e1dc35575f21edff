"""Calls with parameters that a function does not have: a named refusal with the line, and a TypeError as ever."""

from __future__ import annotations

import numpy as np
import pytest

from nkismith.verify.simulator.errors import LegalityError, UnsupportedInstruction
from tests.verify.simulator.one import floats, kernel_of, nki, nl, refused, run
from tests.verify.simulator.one import nisa as isa

X = floats(4, 8)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: isa.tensor_copy(dst=x, src=x, mask=None),  # went with the first API
        lambda x: isa.dma_copy(dst=x, src=x, dst_rmw_op=nl.add),  # dma_compute since 0.3
        lambda x: isa.tensor_copy(x),
        lambda x: isa.reciprocal(x, x, None, 3),
        lambda x: nl.exp(x, mask=None),
        lambda x: nl.load(x, mask=None),
    ],
)
def test_are_refused_with_the_line(call):
    assert refused(call, X) == "call_parameters"


def test_say_what_the_function_takes():
    with pytest.raises(LegalityError, match=r"'mask'.*parameters are dst, src, engine, name") as caught:
        nki.simulate(kernel_of(lambda x: isa.tensor_copy(x, x, mask=None)))(X)
    assert caught.value.line == test_say_what_the_function_takes.__code__.co_firstlineno + 2
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", ["exp", "cos", "floor", "sum", "softmax", "transpose", "broadcast_to", "expand_dims"])
def test_of_functions_of_tiles_with_something_else_are_refused(name):
    more = {"sum": (1,), "softmax": (1,), "broadcast_to": ((4, 8),), "expand_dims": (1,)}.get(name, ())
    for given in (1.0, np.ones((4, 8), np.float32), [1.0], None):
        assert refused(lambda x, given=given: getattr(nl, name)(given, *more), X) == "operand_type"
    run(lambda x: (getattr(nl, name)(x, *more), x)[1], X)


def test_known_ones_pass():
    doubled = run(lambda x: (isa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=2.0), x)[1], X)
    assert (doubled == 2 * X).all()


def test_a_kernel_s_own_functions_fail_as_python_does():
    def load(x):
        return x

    globals()["transpose"] = lambda x: x  # a name that nki.language has, too
    for call in (lambda x: load(x, 1), lambda x: globals()["transpose"](x, 1), lambda x: transpose(x, 1)):  # noqa: F821
        with pytest.raises(TypeError) as caught:
            nki.simulate(kernel_of(call))(X)
        assert not isinstance(caught.value, LegalityError)


def test_attributes_that_tensors_lack_are_refused_with_the_line():
    with pytest.raises(UnsupportedInstruction, match=r"NkiTensor\.astype .* reshape") as caught:
        nki.simulate(kernel_of(lambda x: x.astype(nl.int32)))(X)
    assert caught.value.line == test_attributes_that_tensors_lack_are_refused_with_the_line.__code__.co_firstlineno + 2
    assert run(lambda x: nl.copy(x) if hasattr(x, "shape") and not hasattr(x, "astype") else None, X).shape == X.shape


@pytest.mark.parametrize("name", ["arange", "par_dim", "dynamic_range"])
def test_names_that_are_gone_are_refused_with_the_line(name):
    with pytest.raises(UnsupportedInstruction) as caught:
        nki.simulate(kernel_of(lambda x: getattr(nl, name)(4)))(np.ones((2, 2), np.float32))
    assert caught.value.line == test_names_that_are_gone_are_refused_with_the_line.__code__.co_firstlineno + 3
