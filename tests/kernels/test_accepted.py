"""Accepted kernels: present, fresh, documented, and right on shapes that their evidence may lack."""

import ast

import numpy as np
import pytest

from nkismith.kernels import registry
from nkismith.kernels import spec as specs
from nkismith.kernels.spec import Case
from nkismith.verify import cases, evidence, reference, simulator
from nkismith.verify.cases import Trial
from nkismith.verify.compare import compare

OPS = ["rope_3d", "kv_cache_update", "rolling_attention"]
KERNELS = registry.all()
ALLOWED = {"nki", "math", "functools", "dataclasses", "enum", "typing"}


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("op", OPS)
def test_each_op_has_a_fresh_kernel_for_each_target_and_dtype(op, dtype, target):
    found = registry.find(op, target=target, dtype=dtype, lnc=1)
    assert found.evidence["op"] == op and not found.stale


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.op}-{k.path.parent.name}-{k.evidence['target']}")
def test_nothing_changed_under_the_verdict(kernel):
    assert evidence.changes(kernel) == [], "verify it again: nkismith accept, or nkismith recheck to see why"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.op}-{k.path.parent.name}-{k.evidence['target']}")
def test_the_same_bytes_run_on_a_trainium_since_only_nki_is_imported(kernel):
    tree = ast.parse(kernel.source)
    modules = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    modules += [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert {m.split(".")[0] for m in modules} <= ALLOWED
    entry = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == kernel.op)
    assert [a.arg for a in entry.args.args] == list(specs.load(kernel.op).inputs)
    for part in ("Dimensions:", "Args:", "Accuracy:", "Tiling:"):
        assert part in (ast.get_docstring(entry) or ""), part


@pytest.fixture(params=[("trn2", 1), ("trn3", 1), ("trn2", 2)], ids=["trn2", "trn3", "trn2-lnc2"])
def launched(request):
    """Run an op's kernel on arrays: (op) -> callable, on a target and LNC degree."""
    target, lnc = request.param
    simulator.install("2.33", target=target, lnc=lnc)
    import nki

    def kernel(op):
        scope: dict = {"__name__": op}
        exec(compile(registry.find(op, target=target, dtype=None, lnc=1).source, op, "exec"), scope)
        return nki.simulate(scope[op][2] if lnc == 2 else scope[op])

    yield kernel
    simulator.uninstall()


# Sizes beside tiles, steps and groups of each kernel; several steps of own and past keys; more than one group of units.
UNUSUAL = [
    ("rope_3d", {"S": 1155, "H": 5, "D": 32}, None),
    ("rope_3d", {"S": 127, "H": 12, "D": 128}, None),
    ("kv_cache_update", {"N": 2, "H": 2, "D": 128, "T": 1031}, {"slot": [1]}),
    ("kv_cache_update", {"N": 3, "H": 1, "D": 64, "T": 7}, {"slot": [0]}),
    (
        "rolling_attention",
        {"S": 3, "L": 4500, "H": 1, "D": 32, "N": 3, "T": 1100, "P": 3},
        {"slots": [2, 0, 1], "n_past": [2]},
    ),
    (
        "rolling_attention",
        {"S": 130, "L": 130, "H": 3, "D": 128, "N": 1, "T": 129, "P": 1},
        {"slots": [0], "n_past": [0]},
    ),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("op", "dims", "control"), UNUSUAL, ids=lambda v: str(v) if isinstance(v, str) else None)
def test_right_on_unusual_shapes(launched, op, dims, control, dtype):
    _judge(launched, op, Case(dims, dtype, control))


@pytest.mark.parametrize("launched", [("trn2", 1)], indirect=True, ids=["trn2"])
def test_right_on_more_units_than_stay_on_chip_together(launched):
    dims = {"S": 1030, "L": 1030, "H": 11, "D": 16, "N": 1, "T": 1, "P": 1}
    _judge(launched, "rolling_attention", Case(dims, "bfloat16", {"slots": [0], "n_past": [1]}))


def _judge(launched, op, case):
    spec = specs.load(op)
    bound, inputs = spec.bind(case), cases.draw(spec, Trial(case, "normal", 9))
    want = reference.expected(spec, bound, inputs)
    arrays = {name: array.copy() for name, array in inputs.items()}
    returned = launched(op)(*arrays.values())
    outputs = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    got = {n: arrays[n] for n in spec.in_place} | dict(zip(spec.outputs, outputs, strict=True))
    for result in compare(spec, bound, want, inputs, got):
        assert result.ok, result.message


def test_attention_keeps_its_head_when_the_largest_logit_comes_last(launched):
    """A maximum that jumps by hundreds from one step of keys to the next must not overflow or lose what follows."""
    spec = specs.load("rolling_attention")
    case = Case({"S": 4, "L": 2100, "H": 1, "D": 16, "N": 1, "T": 20, "P": 1}, "float32", {"slots": [0], "n_past": [1]})
    inputs = cases.draw(spec, Trial(case, "normal", 4))
    inputs["q"][:] = 1
    inputs["k_own"][:] = np.linspace(-300, 300, 2100, dtype="f4")[:, None, None]
    want = reference.expected(spec, spec.bind(case), inputs)
    y = launched("rolling_attention")(*inputs.values())
    assert compare(spec, spec.bind(case), want, inputs, {"y": y})[0].ok
