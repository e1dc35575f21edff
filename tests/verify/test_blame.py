"""Blame names the line that made a wrong element, on traces of small kernels with one mistake each."""

from nkismith.verify.blame import blame
from nkismith.verify.simulator import install
from nkismith.verify.simulator.kernel import TensorType, record

install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def lines_of(kernel, *types):
    trace, _ = record(kernel, types)
    return trace, {i.attrs.get("op0") or i.op: i.line for i in trace.programs[0].body}


def test_the_line_that_only_the_wrong_half_passes_is_named():
    @nki.jit
    def kernel(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nisa.tensor_scalar(dst=t[:, 0:4], data=t[:, 0:4], op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=t[:, 4:8], data=t[:, 4:8], op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=y, src=t)
        return y

    trace, lines = lines_of(kernel, TensorType((2, 8), "float32"))
    found = blame(trace, trace.outputs[0].buffer, wrong=12, right=9)  # [1, 4] wrong, [1, 1] right
    assert found.line == lines["multiply"]
    assert lines["add"] not in found.lines


def test_where_every_element_is_wrong_the_computation_nearest_to_the_output_is_named():
    @nki.jit
    def kernel(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=y, src=t)
        return y

    trace, lines = lines_of(kernel, TensorType((2, 8), "float32"))
    assert blame(trace, trace.outputs[0].buffer, wrong=0, right=None).line == lines["multiply"]


def test_an_overwritten_result_is_not_blamed():
    @nki.jit
    def kernel(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        nisa.memset(dst=t, value=0.0)
        nisa.dma_copy(dst=y, src=t)
        return y

    trace, lines = lines_of(kernel, TensorType((2, 8), "float32"))
    found = blame(trace, trace.outputs[0].buffer, wrong=0, right=None)
    assert found.line == lines["memset"]
    assert lines["add"] not in found.lines
