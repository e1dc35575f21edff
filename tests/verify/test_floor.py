import pytest

from nkismith.kernels import spec as specs
from nkismith.kernels.spec import Case
from nkismith.verify.floor import floor, floor_us


def _production(op: str):
    spec = specs.load(op)
    return spec.bind(spec.cases("production")[0])


def test_attention_at_production_size_is_bound_by_the_tensor_engine():
    """4 * 11700 * 32760 * 128 * 3 FLOP at 78.6 TFLOP/s."""
    got = floor(_production("rolling_attention"), "trn2", 1)
    assert got.bound == "tensor" and got.us == pytest.approx(588_736_512_000 / 78.6432e6, rel=1e-9)


def test_a_copy_is_bound_by_hbm_and_two_cores_share_one_stack():
    bound = _production("kv_cache_update")
    moved = 2 * (2 * 4680 * 3 * 128 * 2) + 4
    assert floor(bound, "trn2", 1).bound == "hbm"
    assert floor_us(bound, "trn2", 1) == pytest.approx(moved / 435.2e3)
    assert floor_us(bound, "trn2", 2) == pytest.approx(moved / 750e3)


def test_the_floor_grows_with_size_and_falls_with_a_faster_target():
    spec = specs.load("rope_3d")
    sizes = [floor_us(spec.bind(Case({"S": s, "H": 3, "D": 64}, "bfloat16")), "trn2", 1) for s in (10, 100, 1000)]
    assert sizes == sorted(sizes) and sizes[0] > 0
    assert floor_us(_production("rope_3d"), "trn3", 1) < floor_us(_production("rope_3d"), "trn2", 1)


def test_float32_products_cost_more_than_bfloat16_ones():
    spec = specs.load("cross_attention")
    dims = {"S": 512, "L": 512, "H": 1, "D": 128}
    half, full = (floor(spec.bind(Case(dims, d)), "trn2", 1).parts["tensor"] for d in ("bfloat16", "float32"))
    assert full == 3 * half


def test_an_unknown_target_is_named():
    with pytest.raises(ValueError, match="trn9"):
        floor_us(_production("rope_3d"), "trn9", 1)
