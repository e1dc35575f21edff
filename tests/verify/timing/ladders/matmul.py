"""C = A.T @ B four ways, after the SDK's matrix multiplication tutorial: each step moves less, in longer rows.

A is [K, M], B is [K, N], both in HBM with the contraction first.
"""

import nki.isa as nisa
import nki.language as nl

P, WIDE = 128, 512


def finish(out, rows, cols, sums):
    """Copy a finished PSUM tile to its place in the output."""
    done = nl.ndarray(sums.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(done, sums)
    nisa.dma_copy(out[rows, cols], done)


def loaded(source):
    """A tile filled from HBM."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, source)
    return tile


def naive(a, b):
    """Both operands of every matmul come from HBM."""
    (k, m), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, P):
        for j in range(0, n, WIDE):
            sums = nl.ndarray((P, WIDE), dtype=nl.float32, buffer=nl.psum)
            for c in range(0, k, P):
                left, right = loaded(a[c : c + P, i : i + P]), loaded(b[c : c + P, j : j + WIDE])
                nisa.nc_matmul(sums, left, right)
            finish(out, slice(i, i + P), slice(j, j + WIDE), sums)
    return out


def hoisted(a, b):
    """The column of A is loaded once for all of B."""
    (k, m), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(0, m, P):
        lefts = [loaded(a[c : c + P, i : i + P]) for c in range(0, k, P)]
        for j in range(0, n, WIDE):
            rights = [loaded(b[c : c + P, j : j + WIDE]) for c in range(0, k, P)]
            sums = nl.ndarray((P, WIDE), dtype=nl.float32, buffer=nl.psum)
            for left, right in zip(lefts, rights, strict=True):
                nisa.nc_matmul(sums, left, right)
            finish(out, slice(i, i + P), slice(j, j + WIDE), sums)
    return out


def blocked(a, b, tall=2, broad=2):
    """Blocks of 256 rows by 1024 columns: every loaded tile serves two or more matmuls."""
    (k, m), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    steps = range(0, k, P)
    for i in range(0, m, P * tall):
        lefts = [[loaded(a[c : c + P, i + r * P : i + (r + 1) * P]) for c in steps] for r in range(tall)]
        for j in range(0, n, WIDE * broad):
            rights = [[loaded(b[c : c + P, j + s * WIDE : j + (s + 1) * WIDE]) for c in steps] for s in range(broad)]
            for r in range(tall):
                for s in range(broad):
                    sums = nl.ndarray((P, WIDE), dtype=nl.float32, buffer=nl.psum)
                    for left, right in zip(lefts[r], rights[s], strict=True):
                        nisa.nc_matmul(sums, left, right)
                    rows, cols = i + r * P, j + s * WIDE
                    finish(out, slice(rows, rows + P), slice(cols, cols + WIDE), sums)
    return out


def in_rows(a, b, tall=16, broad=2, deep=8):
    """All three dimensions blocked; rows of 2 and 4 KiB are loaded, partial sums are kept in SBUF."""
    (k, m), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    for j in range(0, n, WIDE * broad):
        totals = []
        for _ in range(m // P):
            total = nl.ndarray((P, broad, WIDE), dtype=a.dtype, buffer=nl.sbuf)
            nisa.memset(total, 0.0)
            totals.append(total)
        for c in range(0, k, P * deep):
            rights = nl.ndarray((P, deep, WIDE * broad), dtype=b.dtype, buffer=nl.sbuf)
            for d in range(deep):
                nisa.dma_copy(rights[:, d], b[c + d * P : c + (d + 1) * P, j : j + WIDE * broad])
            for i in range(0, m, P * tall):
                lefts = nl.ndarray((P, deep, P * tall), dtype=a.dtype, buffer=nl.sbuf)
                for d in range(deep):
                    nisa.dma_copy(lefts[:, d], a[c + d * P : c + (d + 1) * P, i : i + P * tall])
                for s in range(broad):
                    for r in range(tall):
                        sums = nl.ndarray((P, WIDE), dtype=nl.float32, buffer=nl.psum)
                        for d in range(deep):
                            left = lefts[:, d, r * P : (r + 1) * P]
                            nisa.nc_matmul(sums, left, rights[:, d, s * WIDE : (s + 1) * WIDE])
                        total = totals[i // P + r][:, s]
                        nisa.tensor_tensor(total, total, sums, op=nl.add)
        for i, total in enumerate(totals):
            rows = slice(i * P, (i + 1) * P)
            nisa.dma_copy(out[rows, j : j + WIDE * broad], total.reshape((P, WIDE * broad)))
    return out
