"""Floors against arithmetic on the documented peaks."""

import pytest

from nkismith.kernels import spec as specs
from nkismith.kernels.spec import Case
from nkismith.verify.simulator.hardware import TRN2, TRN3
from nkismith.verify.timing.floor import floor, narrowest


def _floor(op: str, machine=TRN2, lnc=1, case=None):
    spec = specs.load(op)
    bound = spec.bind(case or spec.cases("production")[0])
    return floor(bound.work, machine, lnc, narrowest([t.dtype for t in bound.inputs.values()]))


def test_attention_at_production_size_is_bound_by_the_tensor_engine():
    """4 * 11700 * 32760 * 128 * 3 FLOP at 78.6 TFLOP/s."""
    got = _floor("rolling_attention")
    assert got.bound == "tensor"
    assert got.us == pytest.approx(588_736_512_000 / 78.6432e6, rel=1e-9)


def test_a_copy_is_bound_by_hbm_and_two_cores_share_one_stack():
    moved = 2 * (2 * 4680 * 3 * 128 * 2) + 4
    assert _floor("kv_cache_update").bound == "hbm"
    assert _floor("kv_cache_update").us == pytest.approx(moved / 435.2e3)
    assert _floor("kv_cache_update", lnc=2).us == pytest.approx(moved / 750e3)


def test_the_floor_grows_with_size_and_falls_with_a_faster_target():
    sizes = [_floor("rope_3d", case=Case({"S": s, "H": 3, "D": 64}, "bfloat16")).us for s in (10, 100, 1000)]
    assert sizes == sorted(sizes)
    assert sizes[0] > 0
    assert _floor("rope_3d", TRN3).us < _floor("rope_3d").us


def test_float32_products_cost_more_than_bfloat16_ones_and_fp8_less():
    work = {"matmul": 1e12}
    assert floor(work, TRN2, 1, 4).us == 3 * floor(work, TRN2, 1, 2).us
    assert floor(work, TRN2, 1, 1).us == floor(work, TRN2, 1, 2).us / 2
    assert floor(work, TRN3, 1, 1).us == floor(work, TRN3, 1, 2).us / 4


def test_work_that_no_resource_serves_is_named():
    with pytest.raises(ValueError, match="tensor_flops"):
        floor({"tensor_flops": 1.0}, TRN2, 1)
