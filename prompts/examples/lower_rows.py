"""y = x where column <= row, else fill: a mask from positions, without building a mask."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
F = 2048
FILL = -30000.0


@nki.jit
def lower_rows(x):
    N, C = x.shape
    y = nl.ndarray((N, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, N, P):
        p = min(P, N - n0)
        for c0 in range(0, C, F):
            f = min(F, C - c0)
            x_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)
            y_t = nl.ndarray((p, f), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_t, src=x[n0 : n0 + p, c0 : c0 + f])
            # At partition i, column j: offset + 1 * i - 1 * j = (n0 + i) - (c0 + j); kept where that is >= 0.
            nisa.affine_select(
                dst=y_t, pattern=[[-1, f]], offset=n0 - c0, channel_multiplier=1, on_true_tile=x_t,
                on_false_value=FILL, cmp_op=nl.greater_equal,
            )  # fmt: skip
            nisa.dma_copy(dst=y[n0 : n0 + p, c0 : c0 + f], src=y_t)
    return y
