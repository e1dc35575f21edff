"""ScalarE: each activation against PyTorch, scale and bias, the accumulator, valid ranges."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.verify.simulator.one import floats, in_psum, like, nisa, nl, refused, run, unwritten, warned

BF16 = ml_dtypes.bfloat16
TRN3 = "trn3"
CMD = nisa.reduce_cmd


def derivative(function):
    def apply(x):
        x = x.clone().requires_grad_(True)
        return torch.autograd.grad(function(x).sum(), x)[0]

    return apply


def gelu_sigmoid(x):
    return x * torch.sigmoid(1.702 * x)


FUNCTIONS = {
    "copy": lambda x: x, "square": lambda x: x * x, "sigmoid": torch.sigmoid, "relu": F.relu, "gelu": F.gelu,
    "gelu_dx": derivative(F.gelu), "gelu_apprx_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_apprx_sigmoid": gelu_sigmoid, "gelu_apprx_sigmoid_dx": derivative(gelu_sigmoid), "silu": F.silu,
    "silu_dx": derivative(F.silu), "tanh": torch.tanh, "softplus": F.softplus, "mish": F.mish, "erf": torch.erf,
    "erf_dx": derivative(torch.erf), "exp": torch.exp, "sign": torch.sign, "abs": torch.abs, "log": torch.log,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "sin": torch.sin, "arctan": torch.arctan,
}  # fmt: skip
POSITIVE = {"log", "sqrt", "rsqrt"}


def activated(op, dtype=None, **options):
    def build(x, *more):
        out = like(x, dtype=dtype)
        named = {k: more[v] if k in ("scale", "bias") and isinstance(v, int) else v for k, v in options.items()}
        nisa.activation(out, op, x, **named)
        return out

    return build


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", ["trn2", TRN3])
def test_activation_functions_agree_with_pytorch(name, target):
    a = np.linspace(-9, 9, 60, dtype=np.float32).reshape(4, 15)
    if name in POSITIVE:
        a = np.abs(a) + 0.01
    elif name in ("sin", "arctan"):
        a /= 6
    want = FUNCTIONS[name](torch.from_numpy(a).double()).numpy()
    np.testing.assert_allclose(run(activated(getattr(nl, name)), a, target=target), want, rtol=3e-6, atol=3e-7)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
def test_scale_and_bias_come_before_the_function(dtype):
    a = np.random.default_rng(0).integers(-3, 4, (5, 2, 3)).astype(dtype)
    scale, bias = floats(5, 1), floats(5, 1, seed=1)
    build = activated(nl.copy, dtype=nl.float32, scale=0, bias=1)
    want = a.astype(np.float32) * scale[:, :, None] + bias[:, :, None]
    assert run(build, a, scale, bias).tolist() == want.tolist()
    numbers = activated(nl.copy, dtype=nl.float32, scale=2.0, bias=0.5)
    assert run(numbers, a).tolist() == (a.astype(np.float32) * 2 + np.float32(0.5)).tolist()


def test_scale_is_float32_and_bias_is_not_tfloat32():
    a, narrow = floats(3, 4), floats(3, 1, dtype=BF16)
    assert refused(activated(nl.exp, scale=0), a, narrow) == "dtype"
    assert run(activated(nl.copy, bias=0), a, narrow).tolist() == (a + narrow.astype(np.float32)).tolist()
    assert refused(activated(nl.exp, bias=0), a, floats(2, 1)) == "vector_shape"

    def tf32(x, b):
        out = like(x)
        nisa.activation(out, nl.exp, x, bias=b.view(nl.tfloat32))
        return out

    assert refused(tf32, a, floats(3, 1)) == "dtype"


def test_what_is_no_activation_is_refused():
    a = floats(3, 4)
    assert refused(activated(nl.add), a) == "operator"
    assert refused(activated(nl.prelu), a) == "operator"
    assert refused(activated(nl.exp, reduce_op=nl.maximum), a) == "operator"
    assert refused(activated(nl.exp, reduce_cmd=CMD.load_reduce), a) == "reduce_cmd"


@pytest.mark.parametrize(
    "name,inside,outside",
    [
        ("sin", 3.1, 3.2), ("sin", -3.1, -3.2), ("arctan", 1.5, 1.6), ("log", 1e-19, 0.0), ("sqrt", 1e-30, 0.0),
        ("rsqrt", 1e-26, 1e-27), ("reciprocal", -1e-12, 1e-13), ("reciprocal", 1e12, -1e13), ("log", 1e19, 1e20),
    ],
)  # fmt: skip
def test_leaving_the_valid_range_warns_with_the_line(name, inside, outside):
    build = activated(getattr(nl, name))
    ok = np.full((2, 3), inside, np.float32)
    bad = ok.copy()
    bad[1, 2] = outside
    assert warned(build, ok) == []
    texts = warned(build, bad)
    assert len(texts) == 1 and name in texts[0] and "valid range" in texts[0]


def test_sin_is_not_range_reduced():
    got = run(activated(nl.sin), np.array([[9.0, -9.0, 1.0]], np.float32))
    np.testing.assert_allclose(got, [[27.65, -27.65, math.sin(1.0)]], rtol=1e-3)


def sums(commands, op=nl.square):
    """One activation a command on the same tile; the last one reads the accumulator."""

    def build(x):
        total = nl.ndarray((x.shape[0], 1), dtype=nl.float32)
        for i, command in enumerate(commands):
            last = {"reduce_res": total} if i == len(commands) - 1 else {}
            nisa.activation(like(x), op, x, reduce_op=nl.add, reduce_cmd=getattr(CMD, command), **last)
        return total

    return build


def test_the_accumulator_adds_what_the_function_returned():
    a = np.random.default_rng(0).integers(-3, 4, (4, 6)).astype(np.float32)
    once = (a * a).sum(axis=1)[:, None]
    assert run(sums(["reset_reduce"]), a).tolist() == once.tolist()
    assert run(sums(["reset_reduce", "reduce"]), a).tolist() == (2 * once).tolist()
    assert run(sums(["reset_reduce", "idle", "reduce"]), a).tolist() == (2 * once).tolist()
    assert run(sums(["reset_reduce", "reset"]), a).tolist() == (0 * once).tolist()
    assert run(sums(["reset", "reduce"]), a).tolist() == once.tolist()
    assert unwritten(sums(["reduce"]), a).all()


def test_the_accumulator_keeps_a_value_for_each_lane():
    a = np.ones((64, 4), np.float32)

    def build(x):
        low, high = x[0:32, :], x[32:64, :]
        total = nl.ndarray((64, 1), dtype=nl.float32)
        nisa.activation(like(x)[0:32, :], nl.copy, low, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce)
        nisa.activation(like(x)[32:64, :], nl.copy, high, scale=3.0, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce)
        nisa.activation(like(x), nl.copy, x, reduce_op=nl.add, reduce_cmd=CMD.reduce, reduce_res=total)
        return total

    assert run(build, a)[:, 0].tolist() == [8.0] * 32 + [16.0] * 32


def test_reduction_is_of_float32_results_before_rounding():
    a = np.full((2, 300), 1.003, np.float32)

    def build(x):
        out, total = like(x, dtype=nl.bfloat16), nl.ndarray((2, 1), dtype=nl.float32)
        nisa.activation_reduce(out, nl.copy, x, reduce_op=nl.add, reduce_res=total)
        return out, total

    out, total = run(build, a)
    assert (out == np.float32(1.003).astype(BF16)).all()
    np.testing.assert_allclose(total, [[300.9]] * 2, rtol=1e-5)


def test_activation_reduce_adds_only():
    def build(op):
        def body(x):
            total = nl.ndarray((3, 1), dtype=nl.float32)
            nisa.activation_reduce(like(x), nl.exp, x, reduce_op=op, reduce_res=total)
            return total

        return body

    a = floats(3, 4)
    assert refused(build(nl.maximum), a) == "operator"
    np.testing.assert_allclose(run(build(nl.add), a)[:, 0], np.exp(a.astype(np.float64)).sum(axis=1), rtol=1e-6)


def test_gpsimd_activates_on_trn3_without_a_reduction():
    gpsimd = nisa.engine.gpsimd
    a = floats(3, 4)
    assert refused(activated(nl.exp, engine=gpsimd), a) == "engine"
    np.testing.assert_allclose(run(activated(nl.exp, engine=gpsimd), a, target=TRN3), np.exp(a), rtol=1e-6)
    reducing = activated(nl.exp, engine=gpsimd, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce)
    assert refused(reducing, a, target=TRN3) == "engine"


def two(op0, op1, reverse0=False, reverse1=False, op=None, relu_param=0.0, **options):
    def build(x, y):
        out = like(x)
        nisa.activate2(
            out, op or nl.copy, x, imm0=2.0, imm1=y, op0=op0, op1=op1, reverse0=reverse0, reverse1=reverse1,
            relu_param=relu_param, **options,
        )  # fmt: skip
        return out

    return build


def test_activate2_has_six_operator_pairs():
    a, c = floats(4, 6), floats(4, 1, seed=1)
    by = nl.bypass
    for pair, want in {
        (nl.multiply, nl.add): a * 2 + c, (nl.multiply, nl.subtract): a * 2 - c, (nl.multiply, by): a * 2,
        (nl.add, by): a + 2, (nl.subtract, by): a - 2, (by, by): a,
    }.items():  # fmt: skip
        assert run(two(*pair), a, c, target=TRN3).tolist() == want.tolist()
    assert run(two(nl.multiply, nl.subtract, reverse1=True), a, c, target=TRN3).tolist() == (c - a * 2).tolist()
    assert run(two(nl.subtract, by, reverse0=True), a, c, target=TRN3).tolist() == (2 - a).tolist()
    assert refused(two(nl.add, nl.multiply), a, c, target=TRN3) == "operator"
    assert refused(two(by, nl.add), a, c, target=TRN3) == "operator"
    assert refused(two(nl.multiply, by, reverse1=True), a, c, target=TRN3) == "reverse"
    assert refused(two(by, by), a, c, target="trn2") == "target"


def test_activate2_has_prelu():
    a, c = floats(4, 6), floats(4, 1)
    want = np.where(a > 0, a, a * np.float32(0.25))
    assert run(two(nl.bypass, nl.bypass, op=nl.prelu, relu_param=0.25), a, c, target=TRN3).tolist() == want.tolist()


@pytest.mark.parametrize("name", ["add", "maximum", "minimum", "abs_max", "abs_min"])
def test_activate2_reduces_with_five_operators(name):
    a = np.random.default_rng(2).permutation(np.arange(-12, 12)).reshape(4, 6).astype(np.float32) + np.float32(0.25)
    fold = {
        "add": sum, "maximum": max, "minimum": min, "abs_max": lambda v: max(v, key=abs),
        "abs_min": lambda v: min(v, key=abs),
    }[name]  # fmt: skip

    def build(x):
        total = nl.ndarray((4, 1), dtype=nl.float32)
        nisa.activate2(
            like(x), nl.copy, x, imm0=0.0, imm1=0.0, op0=nl.bypass, op1=nl.bypass, reduce_op=getattr(nl, name),
            reduce_cmd=CMD.reset_reduce, reduce_res=total,
        )  # fmt: skip
        return total

    assert run(build, a, target=TRN3)[:, 0].tolist() == [fold(row) for row in a.tolist()]


def test_activation_reads_and_writes_psum():
    def build(x):
        out = like(x, buffer=nl.psum)
        nisa.activation(out, nl.exp, in_psum(x))
        return out

    a = floats(3, 4)
    np.testing.assert_allclose(run(build, a), np.exp(a), rtol=1e-6)
