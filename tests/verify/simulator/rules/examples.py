"""Run an example of a legality rule: its inputs, and each version live and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nkismith.verify.simulator import install, legality
from nkismith.verify.simulator.dtypes import STORAGE, named
from nkismith.verify.simulator.execute import Execution, execute
from nkismith.verify.simulator.kernel import Kernel, TensorType, record
from nkismith.verify.simulator.legality.rules.rule import Example
from nkismith.verify.simulator.trace import Trace
from nkismith.verify.simulator.wire import decode, encode


def inputs(example: Example) -> dict[str, np.ndarray]:
    """The arrays that `given` describes: normal random floats, small integers, or the values themselves."""
    rng = np.random.default_rng(0)
    arrays = {}
    for one in example.given.split("; "):
        name, dtype, rest = one.split(" ", 2)
        shape_or_values = eval(rest)
        if isinstance(shape_or_values, list):
            values = np.array(shape_or_values)
        elif dtype.startswith(("int", "uint")):
            values = rng.integers(0, 100, shape_or_values)
        else:
            values = rng.standard_normal(shape_or_values)
        arrays[name] = values.astype(STORAGE[dtype])
    return arrays


@contextmanager
def installed(example: Example) -> Iterator[dict[str, Any]]:
    """`nki` of the example's SDK and target, as its text imports it."""
    install(sdk=example.sdk, target=example.target)
    try:
        namespace: dict[str, Any] = {}
        exec("import nki, nki.isa as nisa, nki.language as nl", namespace)
        yield namespace
    finally:
        install(sdk="2.33", target="trn2")


def build(source: str, namespace: dict[str, Any]) -> Kernel:
    """The kernel that a text defines."""
    exec(compile(source, "kernel.py", "exec"), namespace)
    return namespace["kernel"]


def recorded(kernel: Kernel, example: Example) -> Trace:
    """Record, send through bytes, check."""
    types = tuple(TensorType(a.shape, str(named(a.dtype))) for a in inputs(example).values())
    trace, _ = record(kernel, types, target=example.target, sdk=example.sdk, lnc=example.lnc)
    trace = decode(encode(trace))
    legality.check(trace)
    return trace


def replayed(kernel: Kernel, example: Example, **options: Any) -> Execution:
    """Record, check and execute."""
    return execute(recorded(kernel, example), list(inputs(example).values()), **options)


def live(kernel: Kernel, example: Example) -> Any:
    """What nki.simulate returns."""
    import nki

    return nki.simulate(kernel[example.lnc])(*inputs(example).values())
