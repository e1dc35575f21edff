import numpy as np
import pytest
import torch

from nkismith.kernels import scaffold
from nkismith.kernels import spec as specs
from nkismith.kernels.spec import Case, SpecError
from nkismith.verify import cases, reference
from nkismith.verify.cases import Trial
from nkismith.verify.compare import compare

from . import own_specs


def test_unit_roundoff_is_half_the_spacing_at_one():
    assert reference.unit_roundoff("bfloat16") == 2.0**-8
    assert reference.unit_roundoff("float32") == 2.0**-24
    assert reference.unit_roundoff("float16") == 2.0**-11


def test_rolling_attention_is_softmax_over_past_in_order_then_own_keys():
    """Written out with concatenated keys and complex rotation, not with the reference's own operations."""
    rng = np.random.default_rng(1)
    s, length, h, d, n, t = 5, 7, 2, 16, 4, 3
    q, k, v = rng.normal(size=(s, h, d)), rng.normal(size=(length, h, d)), rng.normal(size=(length, h, d))
    k_ring, v_ring = rng.normal(size=(n, h, d, t)), rng.normal(size=(n, h, t, d))
    angle = rng.uniform(-3, 3, (3 * t, d // 2))
    slots, n_past = np.array([3, 1, 0], np.int32), np.array([2], np.int32)
    keys, values = [], []
    for place, slot in enumerate(slots[: n_past[0]]):
        for token in range(t):
            pairs = k_ring[slot, :, 0::2, token] + 1j * k_ring[slot, :, 1::2, token]
            turned = pairs * np.exp(1j * angle[place * t + token])
            keys.append(np.stack((turned.real, turned.imag), -1).reshape(h, d))
            values.append(v_ring[slot, :, token])
    keys, values = np.concatenate((keys, k)), np.concatenate((values, v))
    want = np.empty_like(q)
    for head in range(h):
        weights = np.exp(q[:, head] @ keys[:, head].T / np.sqrt(d))
        want[:, head] = weights / weights.sum(-1, keepdims=True) @ values[:, head]
    dims = {"S": s, "L": length, "H": h, "D": d, "N": n, "T": t, "P": 3}
    spec = specs.load("rolling_attention")
    bound = spec.bind(Case(dims, "float32", {"slots": slots.tolist(), "n_past": [2]}))
    given = (q, k, v, k_ring, v_ring, slots, n_past, np.cos(angle), np.sin(angle))
    got = reference.run(spec, bound, reference.as_tensors(dict(zip(spec.inputs, given, strict=True))))
    np.testing.assert_allclose(got["y"], want, rtol=1e-12)


def test_kv_cache_update_writes_one_slot_and_nothing_else():
    spec = specs.load("kv_cache_update")
    case = Case({"N": 3, "H": 2, "D": 16, "T": 4}, "float32", {"slot": [1]})
    inputs = cases.draw(spec, Trial(case, "normal", 1))
    values = reference.expected(spec, spec.bind(case), inputs).values
    assert list(values) == ["k_ring", "v_ring"]
    for name, axes in (("k_ring", (1, 2, 0)), ("v_ring", (1, 0, 2))):
        np.testing.assert_array_equal(values[name][1], inputs[name[0]].transpose(axes))
        np.testing.assert_array_equal(values[name][[0, 2]], inputs[name][[0, 2]])


def test_values_are_float64_of_the_rounded_inputs():
    spec = specs.load("rope_3d")
    case = Case({"S": 3, "H": 1, "D": 16}, "bfloat16")
    inputs = cases.draw(spec, Trial(case, "normal", 1))
    y = reference.expected(spec, spec.bind(case), inputs).values["y"]
    a, b = inputs["x"][..., 0::2].astype(float), inputs["x"][..., 1::2].astype(float)
    np.testing.assert_allclose(
        y[..., 0::2], a * inputs["cos"][:, None].astype(float) - b * inputs["sin"][:, None].astype(float), rtol=1e-15
    )


def test_spread_is_what_moving_the_inputs_by_a_unit_does(tmp_path):
    """Of a sum of products: unit * sqrt(2 * sum((a b)^2)), whatever the sum itself cancels to."""
    spec = own_specs.write(
        tmp_path, "dot", "{x: {shape: [S, C], dtype: float32}, w: {shape: [C, C], dtype: float32}}",
        "{y: {shape: [S, C], dtype: float32}}", "(x @ w,)",
    )  # fmt: skip
    case = Case({"S": 60, "C": 256})
    inputs = cases.draw(spec, Trial(case, "normal", 3))
    spread = reference.expected(spec, spec.bind(case), inputs).spread["y"]
    want = 2.0**-24 * np.sqrt(2 * np.square(inputs["x"], dtype="f8") @ np.square(inputs["w"], dtype="f8"))
    assert 0.9 < np.median(spread / want) < 1.1 and (spread / want).min() > 0.4


def test_cancellation_and_scale_are_in_the_spread():
    spec = specs.load("rope_3d")
    case = Case({"S": 2, "H": 1, "D": 16}, "float32")
    inputs = {"x": np.ones((2, 1, 16), "f4"), "cos": np.ones((2, 8), "f4"), "sin": np.ones((2, 8), "f4")}
    inputs["x"][1] *= 1024
    spread = reference.expected(spec, spec.bind(case), inputs).spread["y"]
    assert (spread[0] > 2.0**-25).all()  # the even channels cancel to 0 and may still be off by a unit of their terms
    np.testing.assert_allclose(np.median(spread[1]) / np.median(spread[0]), 1024, rtol=0.5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return x * scale[:, None]", "returns Tensor; return a tuple of 1: y"),
        ("return (x, x)", "returns 2 values; return a tuple of 1: y"),
        ("return (x[:1],)", r"y has shape \[1, 40\], the spec says \[30, 40\]"),
        ("return (x > 0,)", r"y is torch\.bool, the spec says"),
        ("return (3.0,)", "y is a float, not a tensor"),
        ("x.mul_(2); return (x,)", "modifies its argument x"),
        ("return (x @ scale[:3],)", r"row_scale fails on S=30 C=40.*RuntimeError"),
    ],
)
def test_a_reference_that_breaks_its_contract_is_our_error_with_its_place(tmp_path, body, message):
    folder = scaffold.new("row_scale", tmp_path)
    (folder / "reference.py").write_text(f"import torch\n\n\ndef row_scale(x, scale):\n    {body}\n")
    reference.load.cache_clear()
    spec = specs.load(folder)
    case = spec.cases("smoke")[0]
    with pytest.raises(SpecError, match=message) as error:
        reference.expected(spec, spec.bind(case), cases.draw(spec, Trial(case, "normal", 1)))
    assert str(error.value).startswith(str(folder / "reference.py"))


def test_threads_are_given_back():
    before = torch.get_num_threads()
    with reference.threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


CROSS_ENTROPY = """
op: cross_entropy
summary: Cross-entropy loss of each row of logits against a label.
maths: loss[n] = log(sum_v exp(logits[n, v])) - logits[n, labels[n]]
dims: {N: {min: 1, max: 64}, V: {min: 1, max: 512}}
inputs:
  logits: {shape: [N, V], dtype: float32}
  labels: {shape: [N], dtype: int32, values: "0 <= labels < V"}
outputs: {loss: {shape: [N], dtype: float32}}
reduction: V
work: {hbm_read: "N*V*4 + N*4", hbm_write: "N*4"}
cases:
  smoke: [{N: 30, V: 5}]
  edge: [{N: 1, V: 1}, {N: 33, V: 130}]
  production: [{N: 64, V: 512}]
"""
CROSS_ENTROPY_REFERENCE = """
import torch

def cross_entropy(logits, labels):
    return (torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none"),)
"""


def test_digits_that_the_formula_itself_loses_in_float32_are_no_mistake(tmp_path):
    """Where the label dominates, the loss is log(1 + tiny): PyTorch's own float32 result has to pass."""
    (tmp_path / "spec.yaml").write_text(CROSS_ENTROPY)
    (tmp_path / "reference.py").write_text(CROSS_ENTROPY_REFERENCE)
    spec = specs.load(tmp_path)
    for trial in cases.plan(spec, seed=3):
        arrays = cases.draw(spec, trial)
        bound = spec.bind(trial.case)
        want = reference.expected(spec, bound, arrays, seed=1)
        logits, labels = (torch.from_numpy(arrays[n]) for n in ("logits", "labels"))
        got = torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none").numpy()
        (right,) = compare(spec, bound, want, arrays, {"loss": got})
        assert right.ok, f"{trial}: {right.message}"
        (wrong,) = compare(spec, bound, want, arrays, {"loss": got + np.float32(1e-3) * (1 + np.abs(got))})
        assert not wrong.ok
