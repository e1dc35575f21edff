"""A loaded kernel serves what was verified, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from nkismith.kernels import registry, spec
from nkismith.verify import check, load
from nkismith.verify.accepted import WrongHere
from nkismith.verify.evidence import evidence
from nkismith.verify.judge import read

HERE = Path(__file__).parent
OP = HERE / "ops" / "scale_add"
EVIDENCE = {"target": "trn2", "lnc": 1, "instructions": "abc", "sdk": "2.33"}
HONEST = (HERE / "honest" / "wrappers.py").read_text()


@pytest.fixture
def loaded(tmp_path):
    def make(source):
        registry.accept(source, spec.load(OP), EVIDENCE, root=tmp_path)
        return load(OP, root=tmp_path)

    return make


def arrays(rows, columns, dtype=np.float32):
    return np.ones((rows, columns), dtype), np.full((rows, columns), 3, dtype)


def test_it_computes_what_was_verified(loaded):
    kernel = loaded(HONEST)
    assert np.array_equal(kernel(*arrays(130, 5)), np.full((130, 5), 5.0))


@pytest.mark.parametrize(
    "given", [arrays(301, 5), arrays(5, 97), arrays(5, 5, np.float16), arrays(5, 5)[:1] + arrays(5, 6)[:1],
              (np.ones(5, np.float32), np.ones(5, np.float32))],
)  # fmt: skip
def test_outside_the_domain_it_refuses(loaded, given):
    with pytest.raises(registry.NoKernel):
        loaded(HONEST)(*given)


def test_a_shape_that_no_case_had_is_held_to_the_spec_as_well(loaded):
    partial = HONEST.replace("def scale_add(x, y):\n", "def scale_add(x, y):\n    assert x.shape[0] != 77\n")
    kernel = loaded(partial)
    kernel(*arrays(76, 5))
    with pytest.raises(WrongHere, match="line"):
        kernel(*arrays(77, 5))


def test_a_verdict_on_chosen_cases_is_no_evidence():
    verdict = check(HONEST, spec.load(OP), cases=spec.load(OP).cases("smoke")[:1])
    assert verdict.accepted and not verdict.complete
    with pytest.raises(registry.RegistryError, match="chosen cases"):
        evidence(verdict.to_dict(), provenance={})


def test_a_source_is_read_byte_for_byte(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_bytes(b"a = 1\r\nb = 2\rc\n\xff")
    assert read(path) == "a = 1\r\nb = 2\rc\n\udcff"


def test_a_kernel_of_another_simulator_is_stale(tmp_path):
    registry.accept(
        HONEST, spec.load(OP), {**EVIDENCE, "meanings": {"dma_copy": "another", "gone": "x"}}, root=tmp_path
    )
    with pytest.raises(registry.StaleKernel, match=r"meaning of dma_copy, gone changed.* nkismith accept"):
        load(OP, root=tmp_path)
