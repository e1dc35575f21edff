"""How long the timing model itself takes: recording and scheduling fused attention, up to the production case.

    python benchmarks/timing.py            # sizes up to 11,700 queries x 32,760 keys x 3 heads
    python benchmarks/timing.py --json

Promise: the production case in under 60 s and 4 GiB on 2 cores, and time that grows with the number of instructions.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from nkismith.verify.simulator import install
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.timing import model

install()

import nki.isa as nisa  # noqa: E402  (installed above)
import nki.language as nl  # noqa: E402

P, WIDE = 128, 512
CASES = ((512, 4096, 1), (2048, 8192, 1), (4096, 16384, 2), (11700, 32760, 3))  # queries, keys, heads
LIMIT_S, LIMIT_GIB = 60.0, 4.0


def tile(shape, dtype, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def attention(q, k, v):
    """q [H, D, S], k [H, D, L], v [H, L, D] -> y [H, S, D]: scores turned, sums from a column of ones."""
    heads, depth, queries = q.shape
    keys = k.shape[2]
    y = nl.ndarray((heads, queries, depth), dtype=q.dtype, buffer=nl.shared_hbm)
    for h in range(heads):
        key = tile((depth, keys), k.dtype)
        nisa.dma_copy(key, k[h])
        values = []
        for j in range(0, keys, P):
            n = min(P, keys - j)
            value = tile((n, depth + 1), v.dtype)
            nisa.dma_copy(value[:, :depth], v[h, j : j + n])
            nisa.memset(value[:, depth:], 1.0)
            values.append(value)
        for i in range(0, queries, WIDE):
            width = min(WIDE, queries - i)
            query = tile((depth, width), q.dtype)
            nisa.dma_copy(query, q[h, :, i : i + width])
            rows = [slice(r, min(r + P, width)) for r in range(0, width, P)]
            sums = [tile((r.stop - r.start, depth + 1), nl.float32, nl.psum) for r in rows]
            for j, value in zip(range(0, keys, P), values, strict=True):
                n = value.shape[0]
                scores, weights = tile((n, width), nl.float32, nl.psum), tile((n, width), q.dtype)
                nisa.nc_matmul(scores, key[:, j : j + n], query)
                nisa.activation(weights, nl.exp, scores, scale=depth**-0.5, bias=-5.0)
                for r, total in zip(rows, sums, strict=True):
                    nisa.nc_matmul(total, weights[:, r], value)
            for r, total in zip(rows, sums, strict=True):
                scale, done = tile((total.shape[0], 1), nl.float32), tile((total.shape[0], depth), q.dtype)
                nisa.reciprocal(scale, total[:, depth:])
                nisa.tensor_scalar(done, total[:, :depth], op0=nl.multiply, operand0=scale)
                nisa.dma_copy(y[h, i + r.start : i + r.stop], done)
    return y


def measure(queries: int, keys: int, heads: int) -> dict[str, float]:
    """Record and model one size."""
    shapes = (heads, 128, queries), (heads, 128, keys), (heads, keys, 128)
    start = time.perf_counter()
    trace, _ = record(attention, tuple(TensorType(s, "bfloat16") for s in shapes))
    recorded = time.perf_counter()
    profile = model(trace).profile
    done = time.perf_counter()
    return {
        "queries": queries,
        "keys": keys,
        "heads": heads,
        "instructions": profile.instruction_count,
        "record_s": recorded - start,
        "model_s": done - recorded,
        "us_per_instruction": 1e6 * (done - start) / profile.instruction_count,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "latency_ms_modelled": profile.latency_us / 1e3,
    }


def main() -> int:
    """Measure all sizes; exit code 1 if the production case misses its limits."""
    found = [measure(*case) for case in CASES]
    if "--json" in sys.argv:
        print(json.dumps(found, indent=2))
    else:
        for row in found:
            print("  ".join(f"{name} {value:,.4g}" for name, value in row.items()))
    last = found[-1]
    return int(last["record_s"] + last["model_s"] > LIMIT_S or last["peak_gib"] > LIMIT_GIB)


if __name__ == "__main__":
    sys.exit(main())
