"""What the simulator costs, as ratios measured in one run on this machine.

    python benchmarks/simulator.py [--small]

recording    microseconds an instruction, kernel Python to trace           limit 25
sandbox      seconds from child start to 100,000 validated instructions     limit 10
replay       microseconds an instruction beyond NumPy's own work            limit 30
matmul       a 2048^3 bf16 kernel against one NumPy float32 product         limit 4x
memory       peak of a replay against what is live plus inputs and outputs  limit 1.5x

Every figure is the best of a few tries, and what runs in one thread is timed by that thread's own clock: the machine
is shared, and what is measured is the program.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from nkismith.kernels import spec
from nkismith.kernels.spec import Bound, Case
from nkismith.verify import sandbox
from nkismith.verify.recording import Request
from nkismith.verify.recording import record as record_in_sandbox
from nkismith.verify.simulator import install, legality
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.trace import Trace, count

install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure beside its limit."""

    name: str
    value: float
    unit: str
    limit: float
    detail: str

    def __str__(self) -> str:
        mark = "ok " if self.value <= self.limit else "OVER"
        return f"{mark:4} {self.name:10} {self.value:8.2f} {self.unit:16} limit {self.limit:g}   {self.detail}"


def best(function: Callable[[], Any], tries: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest of some tries."""
    seconds = []
    for _ in range(tries):
        start = clock()
        function()
        seconds.append(clock() - start)
    return min(seconds)


@nki.jit
def matmul(a, b):
    """a.T @ b with the contraction in PSUM; every tile is loaded for every use."""
    k, m, n = a.shape[0], a.shape[1], b.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(0, m, 128):
        for j in range(0, n, 512):
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for at in range(0, k, 128):
                left, right = nl.ndarray((128, 128), dtype=a.dtype), nl.ndarray((128, 512), dtype=b.dtype)
                nisa.dma_copy(left, a[at : at + 128, i : i + 128])
                nisa.dma_copy(right, b[at : at + 128, j : j + 512])
                nisa.nc_matmul(total, left, right)
            result = nl.ndarray((128, 512), dtype=nl.float32)
            nisa.tensor_copy(result, total)
            nisa.dma_copy(out[i : i + 128, j : j + 512], result)
    return out


CHAIN = """
import nki.isa as nisa
import nki.language as nl
import nki


@nki.jit
def chain(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in range({steps}):
        a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(a, x)
        nisa.tensor_scalar(b, a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
        nisa.activation(a, nl.exp, b, scale=-1.0)
        nisa.tensor_tensor(b, a, b, op=nl.add)
        nisa.dma_copy(out, b)
    return out
"""


def chain_of(steps: int) -> Any:
    """A kernel of 5 instructions a step."""
    scope: dict[str, Any] = {}
    exec(compile(CHAIN.format(steps=steps), "chain.py", "exec"), scope)
    return scope["chain"]


def recording(instructions: int) -> Figure:
    """Kernel Python to trace, in this process."""
    kernel = chain_of(instructions // 5)
    types = (TensorType((128, 512), "float32"),)
    seconds = best(lambda: record(kernel, types), 3, time.thread_time)
    return Figure("recording", seconds / instructions * 1e6, "us/instruction", 25, f"{instructions:,} instructions")


def sandboxed(instructions: int) -> Figure:
    """Two children record, the parent compares, decodes and checks."""
    request = Request(CHAIN.format(steps=instructions // 5), "chain", "2.33", "trn2", 1)
    bound = Bound(
        case=Case(dims={}), inputs={"x": spec.TensorType((128, 512), "float32")}, outputs={}, in_place=(), work={},
        control={}, reduction=1,
    )  # fmt: skip
    limits = sandbox.Limits(wall_seconds=120, cpu_seconds=120)

    def once() -> None:
        legality.check(record_in_sandbox(request, [bound], limits=limits).traces[0])

    return Figure("sandbox", best(once, 2), "s", 10 * instructions / 100_000, f"{instructions:,} instructions")


@dataclass(frozen=True, slots=True)
class Repeated:
    """An instruction repeated on large tiles, and what NumPy alone does for it."""

    name: str
    issue: Callable[[Any, Any, Any], Any]  # (dst, a, b)
    numpy: Callable[[np.ndarray, np.ndarray, np.ndarray], Any]


REPEATED = (
    Repeated(
        "tensor_tensor", lambda d, a, b: nisa.tensor_tensor(d, a, b, op=nl.add), lambda d, a, b: np.add(a, b, out=d)
    ),
    Repeated(
        "tensor_scalar",
        lambda d, a, b: nisa.tensor_scalar(d, a, op0=nl.multiply, operand0=2.0),
        lambda d, a, b: np.multiply(a, np.float32(2), out=d),
    ),
    Repeated("activation", lambda d, a, b: nisa.activation(d, nl.exp, a), lambda d, a, b: np.exp(a, out=d)),
    Repeated("tensor_copy", lambda d, a, b: nisa.tensor_copy(d, a), lambda d, a, b: np.copyto(d, a)),
    Repeated(
        "tensor_reduce",
        lambda d, a, b: nisa.tensor_reduce(d[:, 0:1], op=nl.maximum, data=a, axis=1),
        lambda d, a, b: np.maximum.reduce(a, axis=1, keepdims=True, out=d[:, 0:1]),
    ),
    Repeated("dma_copy", lambda d, a, b: nisa.dma_copy(d, a), lambda d, a, b: np.copyto(d, a)),
)


def repeated(issue: Callable[[Any, Any, Any], Any], columns: int, times: int) -> Trace:
    """A trace that issues one instruction many times on the same three tiles."""

    @nki.jit
    def kernel(a):
        tiles = [nl.ndarray(a.shape, dtype=a.dtype) for _ in range(3)]
        for tile in tiles:
            nisa.dma_copy(tile, a)
        for _ in range(times):
            issue(*tiles)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tiles[0])
        return out

    return record(kernel, (TensorType((128, columns), "float32"),))[0]


def replay(columns: int, times: int) -> Figure:
    """Replay of instructions on [128, columns] float32 tiles, less the same NumPy calls on plain arrays.

    What a replay costs once, such as loading inputs, cancels: a long trace is compared with a short one.
    """
    x = np.random.default_rng(0).standard_normal((128, columns)).astype(np.float32)
    y, z = x.copy(), np.empty_like(x)

    def of_numpy(function: Callable[[np.ndarray, np.ndarray, np.ndarray], Any]) -> None:
        for _ in range(times):
            function(z, x, y)

    worst, parts = 0.0, []
    for case in REPEATED:
        long, short = repeated(case.issue, columns, 2 * times), repeated(case.issue, columns, times)
        own = best(partial(of_numpy, case.numpy), 5, time.thread_time)
        ours = best(partial(execute, long, [x]), 5, time.thread_time)
        ours -= best(partial(execute, short, [x]), 5, time.thread_time)
        extra = (ours - own) / times * 1e6
        worst = max(worst, extra)
        parts.append(f"{case.name} {extra:.0f} ({own / times * 1e6:.0f})")
    return Figure("replay", worst, "us/instruction", 30, ", ".join(parts))


def product(size: int) -> Figure:
    """The matmul kernel on replay against np.matmul."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(ml_dtypes.bfloat16) for _ in range(2))
    trace, _ = record(matmul, (TensorType(a.shape, "bfloat16"), TensorType(b.shape, "bfloat16")))
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    ratios, seconds = [], []
    for _ in range(5):
        own = best(lambda: wide_a.T @ wide_b, 1)
        ours = best(lambda: execute(trace, [a, b]), 1)
        ratios.append(ours / own)
        seconds.append((ours, own))
    ours, own = min(s for s, _ in seconds), min(s for _, s in seconds)
    detail = f"{count(trace):,} instructions in {ours:.3f} s, NumPy {own:.3f} s"
    return Figure("matmul", ours / own, f"x of {size}^3", 4, detail)


def memory(columns: int, steps: int) -> Figure:
    """Peak allocation of a replay whose tiles die one after the other."""
    x = np.zeros((128, columns), np.float32)
    trace: Trace = record(chain_of(steps), (TensorType(x.shape, "float32"),))[0]
    tracemalloc.start()
    execute(trace, [x])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = 3 * x.nbytes + 2 * x.nbytes  # the input's copy, the output, the returned copy; two live tiles
    return Figure("memory", peak / held, "x live + in/out", 1.5, f"{steps * 2} tiles of {x.nbytes / 2**20:.0f} MiB")


def main() -> int:
    """Print every figure. Exit code 1 if one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="a tenth of the work, for a quick look")
    small = parser.parse_args().small
    figures = []
    for measure in (
        lambda: recording(5_000 if small else 50_000),
        lambda: sandboxed(10_000 if small else 100_000),
        lambda: replay(2048, 40 if small else 200),
        lambda: product(1024 if small else 2048),
        lambda: memory(4096, 40),
    ):
        figures.append(measure())
        print(figures[-1], flush=True)
    return int(any(f.value > f.limit for f in figures))


if __name__ == "__main__":
    sys.exit(main())
