"""Every template renders for every kind of op, says what the spec says, and stays small."""

import dataclasses

import jinja2
import pytest

from nkismith.kernels import scaffold, spec
from nkismith.prompts import kinds, render
from nkismith.prompts.render import Failure, HotLine, Measure, Prompt, Tried
from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.instructions import TABLE
from nkismith.verify.timing.floor import floor

AWKWARD = """\
op: ring_gather
summary: Pick run-time rows of a ring, add half a vector, and keep a running count in place.
maths: y[i] = ring[ids[i]] + bias[i // 2]; count += n
dims: {M: {min: 1, max: 512}, N: {one_of: [2, 4, 64]}, C: {min: 1, max: 640, multiple_of: 4}}
constraints: ["N <= M"]
inputs:
  ring:  {shape: [M, "2*C"], dtype: [bfloat16, float32]}
  bias:  {shape: ["N//2", "2*C"], dtype: float32, values: {kind: uniform, low: -1, high: 1}}
  ids:   {shape: [N], dtype: int32}
  count: {shape: [1], dtype: int32, values: "0 <= count < M", match: exact}
outputs:
  y: {shape: [N, "2*C"], dtype: ring.dtype, match: {ulp: 1}}
in_place: [count]
control: {ids: "0 <= ids < M"}
work: {hbm_read: "N*2*C*b", hbm_write: "N*2*C*b", vector: "N*2*C"}
cases:
  smoke: [{M: 8, N: 4, C: 8, control: {ids: [0, 7, 7, 3]}}]
"""
REFERENCE = """\
import torch


def ring_gather(ring, bias, ids, count):
    return count + 1, ring[ids.long()] + bias.repeat_interleave(2, 0)
"""


@pytest.fixture
def awkward(tmp_path):
    folder = tmp_path / "ring_gather"
    folder.mkdir()
    (folder / "spec.yaml").write_text(AWKWARD)
    (folder / "reference.py").write_text(REFERENCE)
    return spec.load(folder)


def first(contract, target="trn2", **options):
    return render.first(contract, target=target, sdk="2.33", lnc=1, **options)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("name", spec.names())
def test_every_bundled_op_has_a_prompt_below_30_000_tokens(name, target):
    prompt = first(spec.load(name), target)
    assert prompt.tokens < 30_000
    assert f"def {name}(" in prompt.task and "nisa.dma_copy" in prompt.task
    assert "None" not in prompt.system.replace("accumulate=None", "")


def test_expressions_run_time_scalars_and_in_place_inputs_are_stated(awkward):
    task = first(awkward).task
    for said in (
        "| `ring` | [M, 2*C] | bfloat16 or float32 |",
        "uniform in [-1.0, 1.0]",
        "run-time value, not known while the kernel is built: 0 <= ids < M",
        "updated in place, judged bit-equal to the reference; 0 <= count < M",
        "within 1 ulp",
        "- C: 1..640, a multiple of 4",
        "- N <= M",
        "- smoke: M=8, N=4, C=8, bfloat16 and float32; ids=[0, 7, 7, 3]\n",
        "y [4, 16] bfloat16",
        "def ring_gather(ring, bias, ids, count):",
    ):
        assert said in task, said
    assert "scalar_load" in task and kinds.kind(awkward) == "gather"


@pytest.mark.parametrize(("target", "lnc"), [("trn2", 1), ("trn2", 2), ("trn3", 1)])
@pytest.mark.parametrize("name", ["rope_3d", "gelu_mlp"])
def test_the_least_work_is_the_floor_that_profiles_are_compared_with(name, target, lnc):
    op = spec.load(name)
    work = op.bind(op.cases("production")[0]).work
    us = floor(work, hardware.target(target), lnc, itemsize=2).us
    task = render.first(op, target=target, sdk="2.33", lnc=lnc).task
    assert f"{target}, LNC {lnc}, that takes {us:,.1f} µs" in task


def test_the_system_part_states_the_hardware_of_the_target(awkward):
    assert "208 KiB" in first(awkward).system and "240 KiB" in first(awkward, "trn3").system


def test_a_missing_variable_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        render._render("revise.md.j2", source="")


def test_a_revision_carries_failure_excerpt_history_and_keeps_the_cached_parts(awkward):
    base = first(awkward)
    source = "\n".join(f"line {number}" for number in range(1, 21))
    prompt = render.revision(
        base,
        failure=Failure(
            "legality", "illegal", "132 partitions", rule="partition_limit", fix="tile it", line=12, case="N=4"
        ),
        source=source,
        tried=[Tried(1, "first idea", "refused at record, raised: boom")],
    )
    assert (prompt.system, prompt.task) == (base.system, base.task)
    for said in ("**legality**", "`illegal`", "`partition_limit`", "132 partitions", "tile it", "N=4"):
        assert said in prompt.turn
    assert ">   12  line 12" in prompt.turn and "attempt 1 (first idea): refused at record" in prompt.turn
    assert "     8  line 8" not in prompt.turn.split("The draft")[0]


def test_a_reply_without_a_draft_is_told_without_one(awkward):
    prompt = render.revision(first(awkward), failure=Failure("reply", "reply_format", "no block"), source="", tried=[])
    assert "no block" in prompt.turn and "The draft:" not in prompt.turn


def test_an_optimisation_shows_distance_engines_and_hot_lines(awkward):
    measure = Measure(
        label="modelled", case="N=64", latency_us=200.0, low_us=160.0, high_us=260.0, floor_us=50.0, bound="hbm",
        busiest="vector", active={"vector": 150.0, "dma": 60.0}, diagnosis=("VectorE is busy 75 % of the time",),
        transfers=1200, contiguous_bytes=2048.0, hbm_read_bytes=2e6, hbm_write_bytes=1e6, sbuf_peak_bytes=8192.0,
        psum_peak_bytes=2048.0, spill_bytes=0.0, instructions=4321,
        hot=(HotLine(7, "nisa.tensor_tensor(...)", "tensor_tensor", 120.0),),
    )  # fmt: skip
    turn = render.optimisation(
        first(awkward), source="x = 1", measure=measure, tried=[], gain=0.02, lessons=["a → b → c"]
    ).turn
    for said in ("25.0 %", "**vector**", "75 %", "nisa.tensor_tensor(...)", "2.0 % faster", "a → b → c", "1,200 DMA"):
        assert said in turn
    assert "spilled" not in turn


def test_lessons_are_shown_and_limited(awkward):
    task = first(awkward, lessons=[f"lesson {number}" for number in range(20)]).task
    assert "lesson 0" in task and f"lesson {render.LESSONS}" not in task


def test_a_prompt_survives_the_store(awkward):
    prompt = dataclasses.replace(first(awkward), turn="and now")
    assert Prompt.from_json(prompt.to_json()) == prompt
    assert prompt.text.endswith("and now\n")


def test_the_cards_named_for_any_kind_of_op_are_instructions_of_the_table():
    assert set(kinds._ALWAYS).union(*kinds._CARDS.values()) <= set(TABLE)


@pytest.mark.parametrize(
    ("maths", "reference", "kind"),
    [
        ("y = cumsum(x)", "return (x.cumsum(-1),)", "scan"),
        ("y = softmax(x)", "return (torch.softmax(x, -1),)", "reduction"),
        ("y = x / rms(x)", "return (x * torch.rsqrt(x.square().mean(-1, keepdim=True)),)", "normalisation"),
        ("indices of the largest k", "return (torch.topk(x, 8).indices,)", "selection"),
        ("y = 2 x", "return (2 * x,)", "elementwise"),
        ("y = x @ x.T", "return (x @ x.mT,)", "matmul"),
    ],
)
def test_the_kind_is_read_off_the_spec(tmp_path, maths, reference, kind):
    folder = scaffold.new("some_op", tmp_path)
    text = (folder / "spec.yaml").read_text()
    (folder / "spec.yaml").write_text(
        text.replace("y[s, c] = x[s, c] * scale[s]", maths).replace("Scale every row", "Do")
    )
    body = (folder / "reference.py").read_text().replace("return (x * scale[:, None],)", reference)
    (folder / "reference.py").write_text(body)
    assert kinds.kind(spec.load(folder)) == kind
