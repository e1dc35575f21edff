"""Two tiled products, rows on partitions; x and the hidden layer are transposed on TensorE."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
F = 512


def transposed(x_t, p, C, dtype):
    tiles = (C + P - 1) // P
    xT = nl.ndarray((P, tiles, p), dtype=dtype, buffer=nl.sbuf)
    for t in range(tiles):
        k = min(P, C - t * P)
        turned = nl.ndarray((k, p), dtype=dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=x_t[:, t * P : t * P + k], engine=nisa.engine.tensor)
        nisa.tensor_copy(dst=xT[:k, t, :], src=turned)
    return xT


def product(xT, w, b, p, C, N, out, op):
    tiles = (C + P - 1) // P
    for i in range(0, N, F):
        f = min(F, N - i)
        total = nl.ndarray((p, f), dtype=nl.float32, buffer=nl.psum)
        bias = nl.ndarray((p, f), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=bias, src=b[i : i + f].reshape((1, f)).broadcast(0, p))
        for t in range(tiles):
            k = min(P, C - t * P)
            w_t = nl.ndarray((k, f), dtype=w.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=w_t, src=w[t * P : t * P + k, i : i + f])
            nisa.nc_matmul(dst=total, stationary=xT[:k, t, :], moving=w_t)
        if op is None:
            nisa.tensor_tensor(dst=out[:, i : i + f], data1=total, data2=bias, op=nl.add)
        else:
            nisa.tensor_tensor(dst=bias, data1=total, data2=bias, op=nl.add)
            nisa.activation(dst=out[:, i : i + f], op=op, data=bias)


@nki.jit
def gelu_mlp(x, w1, b1, w2, b2):
    S, C = x.shape
    hidden = w1.shape[1]
    y = nl.ndarray((S, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for s in range(0, S, P):
        p = min(P, S - s)
        x_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_t, src=x[s : s + p, :])
        h = nl.ndarray((p, hidden), dtype=x.dtype, buffer=nl.sbuf)
        product(transposed(x_t, p, C, x.dtype), w1, b1, p, C, hidden, h, nl.gelu_apprx_tanh)
        y_t = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        product(transposed(h, p, hidden, x.dtype), w2, b2, p, hidden, C, y_t, None)
        nisa.dma_copy(dst=y[s : s + p, :], src=y_t)
    return y
