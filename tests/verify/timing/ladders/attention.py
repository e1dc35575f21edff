"""softmax(q k^T) v of one head, four ways, each keeping more of the work on chip and off the busiest engine.

q, k are given transposed, [D, S] and [D, L] with D = 128; v [L, D]; out [S, D]; bfloat16 in HBM.
"""

import nki.isa as nisa
import nki.language as nl

from tests.verify.timing.ladders.matmul import loaded

P, WIDE = 128, 512


def sbuf(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def output(q, v):
    return nl.ndarray((q.shape[1], v.shape[1]), dtype=q.dtype, buffer=nl.shared_hbm)


def scores_in_hbm(q, k, v):
    """Scores, probabilities and result each make a round trip to HBM."""
    queries, length = q.shape[1], k.shape[1]
    scores = nl.ndarray((queries, length), dtype=nl.float32, buffer=nl.private_hbm)
    weights = nl.ndarray((queries, length), dtype=q.dtype, buffer=nl.private_hbm)
    out = output(q, v)
    for i in range(0, queries, P):
        for j in range(0, length, WIDE):
            product = psum((P, WIDE))
            nisa.nc_matmul(product, loaded(q[:, i : i + P]), loaded(k[:, j : j + WIDE]))
            tile = sbuf((P, WIDE))
            nisa.tensor_copy(tile, product)
            nisa.dma_copy(scores[i : i + P, j : j + WIDE], tile)
    for i in range(0, queries, P):
        row = loaded(scores[i : i + P])
        top, total, scale = sbuf((P, 1)), sbuf((P, 1)), sbuf((P, 1))
        nisa.tensor_reduce(top, nl.maximum, row, axis=1, negate=True)
        shifted, grown, result = sbuf((P, length)), sbuf((P, length)), sbuf((P, length), q.dtype)
        nisa.tensor_scalar(shifted, row, op0=nl.add, operand0=top)
        nisa.activation(grown, nl.exp, shifted)
        nisa.tensor_reduce(total, nl.add, grown, axis=1)
        nisa.reciprocal(scale, total)
        nisa.tensor_scalar(result, grown, op0=nl.multiply, operand0=scale)
        nisa.dma_copy(weights[i : i + P], result)
    for i in range(0, queries, P):
        sums = psum((P, v.shape[1]))
        for j in range(0, length, P):
            turned = psum((P, P), q.dtype)
            nisa.nc_transpose(turned, loaded(weights[i : i + P, j : j + P]), engine=nisa.engine.tensor)
            stationary = sbuf((P, P), q.dtype)
            nisa.tensor_copy(stationary, turned)
            nisa.nc_matmul(sums, stationary, loaded(v[j : j + P]))
        done = sbuf((P, v.shape[1]), q.dtype)
        nisa.tensor_copy(done, sums)
        nisa.dma_copy(out[i : i + P], done)
    return out


def scores_in_sbuf(q, k, v):
    """Fused: a row of scores never leaves the chip; softmax in separate instructions as before."""
    queries, length = q.shape[1], k.shape[1]
    out = output(q, v)
    keys = loaded(k)
    values = [loaded(v[j : j + P]) for j in range(0, length, P)]
    for i in range(0, queries, P):
        query = loaded(q[:, i : i + P])
        row = sbuf((P, length))
        for j in range(0, length, WIDE):
            product = psum((P, WIDE))
            nisa.nc_matmul(product, query, keys[:, j : j + WIDE])
            nisa.tensor_copy(row[:, j : j + WIDE], product)
        top, total, scale = sbuf((P, 1)), sbuf((P, 1)), sbuf((P, 1))
        nisa.tensor_reduce(top, nl.maximum, row, axis=1, negate=True)
        shifted, grown, weights = sbuf((P, length)), sbuf((P, length)), sbuf((P, length), q.dtype)
        nisa.tensor_scalar(shifted, row, op0=nl.add, operand0=top)
        nisa.activation(grown, nl.exp, shifted)
        nisa.tensor_reduce(total, nl.add, grown, axis=1)
        nisa.reciprocal(scale, total)
        nisa.tensor_scalar(weights, grown, op0=nl.multiply, operand0=scale)
        finish(out, i, weights, values)
    return out


def finish(out, i, weights, values, scale=None):
    """weights @ values: the weights are turned tile by tile."""
    sums = psum((P, out.shape[1]))
    for j, value in enumerate(values):
        turned = psum((P, P), weights.dtype)
        nisa.nc_transpose(turned, weights[:, j * P : (j + 1) * P], engine=nisa.engine.tensor)
        stationary = sbuf((P, P), weights.dtype)
        nisa.tensor_copy(stationary, turned)
        nisa.nc_matmul(sums, stationary, value)
    done = sbuf((P, out.shape[1]), out.dtype)
    if scale is None:
        nisa.tensor_copy(done, sums)
    else:
        nisa.tensor_scalar(done, sums, op0=nl.multiply, operand0=scale)
    nisa.dma_copy(out[i : i + P], done)


def combined_instructions(q, k, v):
    """One instruction subtracts the maximum, exponentiates from PSUM and sums; the result is scaled at the end."""
    queries, length = q.shape[1], k.shape[1]
    out = output(q, v)
    keys = loaded(k)
    values = [loaded(v[j : j + P]) for j in range(0, length, P)]
    chunks = range(0, length, WIDE)
    for i in range(0, queries, P):
        query = loaded(q[:, i : i + P])
        products, tops = [], sbuf((P, len(chunks)))
        for c, j in enumerate(chunks):
            product = psum((P, WIDE))
            nisa.nc_matmul(product, query, keys[:, j : j + WIDE])
            nisa.tensor_reduce(tops[:, c : c + 1], nl.maximum, product, axis=1)
            products.append(product)
        top, totals, total, scale = sbuf((P, 1)), sbuf((P, len(chunks))), sbuf((P, 1)), sbuf((P, 1))
        nisa.tensor_reduce(top, nl.maximum, tops, axis=1, negate=True)
        weights = sbuf((P, length), q.dtype)
        for c, (j, product) in enumerate(zip(chunks, products, strict=True)):
            nisa.activation_reduce(
                weights[:, j : j + WIDE], nl.exp, product, reduce_op=nl.add, reduce_res=totals[:, c : c + 1], bias=top
            )
        nisa.tensor_reduce(total, nl.add, totals, axis=1)
        nisa.reciprocal(scale, total)
        finish(out, i, weights, values, scale)
    return out


def without_transposes(q, k, v):
    """Scores come out turned, keys on partitions, so that the exponentials are the next stationary as they are.

    Needs a bound of the scores in place of their maximum; the sums come from a column of ones beside the values.
    """
    queries, length = q.shape[1], k.shape[1]
    out = output(q, v)
    keys = loaded(k)
    values = []
    for j in range(0, length, P):
        value = sbuf((P, v.shape[1] + 1), v.dtype)
        nisa.dma_copy(value[:, : v.shape[1]], v[j : j + P])
        nisa.memset(value[:, v.shape[1] :], 1.0)
        values.append(value)
    for i in range(0, queries, WIDE):
        query = loaded(q[:, i : i + WIDE])
        sums = [psum((P, v.shape[1] + 1)) for _ in range(0, WIDE, P)]
        for j, value in enumerate(values):
            product = psum((P, WIDE))
            nisa.nc_matmul(product, keys[:, j * P : (j + 1) * P], query)
            weights = sbuf((P, WIDE), q.dtype)
            nisa.activation(weights, nl.exp, product, bias=-4.0)
            for r, total in enumerate(sums):
                nisa.nc_matmul(total, weights[:, r * P : (r + 1) * P], value)
        for r, total in enumerate(sums):
            scale, done = sbuf((P, 1)), sbuf((P, v.shape[1]), q.dtype)
            nisa.reciprocal(scale, total[:, v.shape[1] :])
            nisa.tensor_scalar(done, total[:, : v.shape[1]], op0=nl.multiply, operand0=scale)
            nisa.dma_copy(out[i + r * P : i + (r + 1) * P], done)
    return out
