"""What a profile promises: fields, sums, JSON, plain words, pictures."""

import json
from itertools import pairwise

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.simulator.wire import decode, encode
from nkismith.verify.timing import model, profile_trace, timeline
from tests.verify.timing.ladders import attention, matmul
from tests.verify.timing.recorded import trace
from tests.verify.timing.test_schedule import one_pair

SQUARE = ((1024, 1024), "bfloat16"), ((1024, 1024), "bfloat16")
WORK = {"hbm_read": 2 * 1024 * 1024 * 2, "hbm_write": 1024 * 1024 * 2, "matmul": 2 * 1024**3}
HEAD = ((128, 512), "bfloat16"), ((128, 1024), "bfloat16"), ((1024, 128), "bfloat16")


@pytest.fixture(scope="module")
def modelled():
    return model(trace(matmul.blocked, *SQUARE), work=WORK)


def test_it_says_what_it_is(modelled):
    found = modelled.profile
    assert (found.label, found.target, found.lnc, found.sdk) == ("modelled", "trn2", 1, "2.33")


def test_traffic_is_what_the_kernel_moves(modelled):
    found = modelled.profile
    left = 1024 * 1024 * 2
    right = 1024 * 1024 * 2 * 4  # B is loaded once for each of the four blocks of rows
    assert found.hbm_read_bytes == left + right
    assert found.hbm_write_bytes == 1024 * 1024 * 2
    assert found.dma.transfer_total_bytes == found.hbm_read_bytes + found.hbm_write_bytes
    assert found.dma.transfer_count * found.dma.transfer_average_bytes == found.dma.transfer_total_bytes
    assert 256 <= found.dma.mean_contiguous_bytes <= 1024
    assert sum(found.dma.queue_counts.values()) == found.dma.transfer_count


def test_utilisation_is_work_over_peak(modelled):
    found = modelled.profile
    assert found.matmul_utilisation == pytest.approx(2 * 1024**3 / (found.latency_us * 78.6432e6))
    assert all(0 <= use.busy_percent <= 100 for use in found.engines.values())


def test_the_critical_path_by_line_adds_up_to_the_latency(modelled):
    found = modelled.profile
    assert sum(u.busy_us for u in found.by_line) == pytest.approx(found.latency_us)
    assert sum(u.percent for u in found.by_line) == pytest.approx(100)
    assert all(a.busy_us >= b.busy_us for a, b in pairwise(found.by_line))


def test_the_floor_needs_the_spec_s_work(modelled):
    assert modelled.profile.bound == "tensor"
    assert modelled.profile.percent_of_floor == pytest.approx(
        100 * modelled.profile.floor_us / modelled.profile.latency_us
    )
    without = profile_trace(trace(matmul.blocked, *SQUARE))
    assert (without.floor_us, without.bound, without.percent_of_floor) == (None, None, None)


def test_it_is_plain_data(modelled):
    data = json.loads(json.dumps(modelled.profile.to_dict()))
    assert data["engines"]["tensor"]["busy_us"] == modelled.profile.engines["tensor"].busy_us
    assert data["by_line"][0]["line"] == modelled.profile.by_line[0].line


def test_the_same_trace_gives_the_same_profile():
    recorded = trace(attention.combined_instructions, *HEAD)
    assert profile_trace(recorded) == profile_trace(recorded)


def test_a_trace_that_went_through_bytes_gives_the_same_profile():
    recorded = trace(attention.scores_in_sbuf, *HEAD)
    assert profile_trace(decode(encode(recorded))) == profile_trace(recorded)


def words(kernel, *shapes, **options):
    return " ".join(profile_trace(trace(kernel, *shapes, **options)).diagnosis)


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


def multiplied(x):
    """VectorE with two float32 inputs is the bottleneck."""
    tile = matmul.loaded(x)
    for _ in range(50):
        nisa.tensor_tensor(nl.ndarray(x.shape, x.dtype), tile, tile, op=nl.multiply)


def test_the_diagnosis_names_engine_instruction_line_and_cure():
    said = words(multiplied, ((128, 2048), "float32"))
    line = line_of(multiplied, 4)
    assert f"100 % of it is the fp32 tensor_tensor multiply at line {line}; in bf16 it runs at twice the rate" in said
    assert "VectorE 9" in said


def test_the_diagnosis_names_a_tile_that_serialises():
    assert "make the tile inside the loop" in words(one_pair, ((128 * 32, 512), "float32"))


def test_the_diagnosis_names_short_runs_and_small_dmas():
    said = words(matmul.naive, *SQUARE)
    assert "in runs of" in said
    assert "move more with each DMA" in said
    assert "half rate" in said


def doubled(x, split):
    """Each row tile, or each core's share of them, from HBM to HBM through SBUF."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first, step = (nl.program_id(0), 2) if split else (0, 1)
    for row in range(128 * first, x.shape[0], 128 * step):
        nisa.dma_copy(out[row : row + 128], matmul.loaded(x[row : row + 128]))
    return out


def test_the_diagnosis_names_two_cores_that_do_the_same():
    rows = ((512, 256), "float32")
    same = "Both cores do the same work"
    assert same in words(doubled, rows, split=False, lnc=2)
    assert same not in words(doubled, rows, split=True, lnc=2)
    assert same not in words(doubled, rows, split=False)


def test_the_diagnosis_has_at_most_ten_lines(modelled):
    assert 3 <= len(modelled.profile.diagnosis) <= 10
    assert modelled.profile.diagnosis[0].startswith("blocked on trn2, LNC 1, SDK 2.33, modelled:")


def test_an_empty_kernel_takes_no_time():
    found = profile_trace(trace(lambda x: None, ((128, 8), "float32")))
    assert found.latency_us == 0
    assert found.diagnosis


def test_the_timeline_opens_in_perfetto(modelled, tmp_path):
    """Trace event format: complete events on named threads; events of a thread do not overlap."""
    timeline.write(modelled, tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {"TensorE", "VectorE", "DMA loads", "DMA stores"} <= set(names.values())
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) >= modelled.profile.instruction_count
    for tid in names:
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if e["tid"] == tid)
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(mine))
    matmuls = [e for e in spans if e["args"]["opcode"] == "nc_matmul"]
    assert all(e["args"]["line"] > 0 and e["args"]["file"] == "matmul.py" for e in matmuls)


def test_the_picture_is_a_png(modelled, tmp_path):
    timeline.write(modelled, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_other_kinds_of_picture_are_refused(modelled, tmp_path):
    with pytest.raises(ValueError, match=r"\.json .* or \.png"):
        timeline.write(modelled, tmp_path / "out.pdf")
