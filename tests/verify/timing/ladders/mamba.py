"""The scan of a Mamba layer three ways, after the SDK's fused Mamba tutorial.

delta, u [channels, L]; a [channels, states]; b, c [states, L]; y [channels, L], all float32:
y = sum over states of c * scan(exp(delta * a), delta * u * b), with the state's row of b and c on every channel.
"""

import nki.isa as nisa
import nki.language as nl

from tests.verify.timing.ladders.matmul import loaded

P, WIDE = 128, 512


def new(cols):
    return nl.ndarray((P, cols), dtype=nl.float32, buffer=nl.sbuf)


def on_all_partitions(ones, row):
    """A row of HBM in every partition of PSUM: an outer product with ones."""
    spread = nl.ndarray((P, row.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(spread, ones, loaded(row))
    return spread


def column_of_ones():
    ones = nl.ndarray((1, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(ones, 1.0)
    return ones


def times_row(dst, tile, ones, rows, state, begin):
    """dst = tile * rows[state], in pieces that fit a bank of PSUM."""
    for at in range(0, tile.shape[1], WIDE):
        piece = slice(at, at + WIDE)
        row = rows[state : state + 1, begin + at : begin + at + WIDE]
        nisa.tensor_tensor(dst[:, piece], tile[:, piece], on_all_partitions(ones, row), op=nl.multiply)


def one_state(total, delta, u, rate, ones, b, c, state, begin, start):
    """Add one state's share of positions begin .. begin+cols-1 to `total`; returns the scanned states."""
    cols = delta.shape[1]
    decay, fed, scanned, out = new(cols), new(cols), new(cols), new(cols)
    nisa.activation(decay, nl.exp, delta, scale=rate)
    nisa.tensor_tensor(fed, delta, u, op=nl.multiply)
    driven = new(cols)
    times_row(driven, fed, ones, b, state, begin)
    nisa.tensor_tensor_scan(scanned, decay, driven, initial=start, op0=nl.multiply, op1=nl.add)
    times_row(out, scanned, ones, c, state, begin)
    nisa.tensor_tensor(total, total, out, op=nl.add)
    return scanned


def states_outside(delta, u, a, b, c):
    """v1: the states loop reloads delta and u every time."""
    channels, length = delta.shape
    y = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = column_of_ones()
    totals = [nl.zeros((P, length), dtype=nl.float32) for _ in range(0, channels, P)]
    for state in range(a.shape[1]):
        for i, total in enumerate(totals):
            rows = slice(i * P, (i + 1) * P)
            mine, mine_u, rate = loaded(delta[rows]), loaded(u[rows]), loaded(a[rows, state : state + 1])
            one_state(total, mine, mine_u, rate, ones, b, c, state, 0, 0.0)
    for i, total in enumerate(totals):
        nisa.dma_copy(y[i * P : (i + 1) * P], total)
    return y


def states_inside(delta, u, a, b, c):
    """v2: delta and u are loaded once and serve all states."""
    channels, length = delta.shape
    y = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = column_of_ones()
    for i in range(0, channels, P):
        rows = slice(i, i + P)
        total = nl.zeros((P, length), dtype=nl.float32)
        mine, mine_u = loaded(delta[rows]), loaded(u[rows])
        for state in range(a.shape[1]):
            rate = loaded(a[rows, state : state + 1])
            one_state(total, mine, mine_u, rate, ones, b, c, state, 0, 0.0)
        nisa.dma_copy(y[rows], total)
    return y


def in_pieces(delta, u, a, b, c):
    """v3: the sequence is cut into pieces of 512, whose scans continue one another."""
    channels, length = delta.shape
    y = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = column_of_ones()
    for i in range(0, channels, P):
        rows = slice(i, i + P)
        total = nl.zeros((P, length), dtype=nl.float32)
        mine, mine_u = loaded(delta[rows]), loaded(u[rows])
        for state in range(a.shape[1]):
            rate = loaded(a[rows, state : state + 1])
            start = 0.0
            for begin in range(0, length, WIDE):
                piece = slice(begin, begin + WIDE)
                scanned = one_state(
                    total[:, piece], mine[:, piece], mine_u[:, piece], rate, ones, b, c, state, begin, start
                )
                start = scanned[:, WIDE - 1 : WIDE]
        nisa.dma_copy(y[rows], total)
    return y
