"""NumPy kernels as an honest author would write them: float32 inside, operands in the case's dtype, one rounding out.

They stand for NKI kernels where only the judge is under test, so that its verdicts do not depend on the simulator.
"""

from __future__ import annotations

import numpy as np

Arrays = dict[str, np.ndarray]


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    even, odd = x[..., 0::2], x[..., 1::2]
    y = np.empty_like(x)
    y[..., 0::2] = even * cos - odd * sin
    y[..., 1::2] = even * sin + odd * cos
    return y


def rope_3d(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> Arrays:
    return {"y": rotate(x.astype(np.float32), cos[:, None], sin[:, None]).astype(x.dtype)}


def kv_cache_update(k_ring: np.ndarray, v_ring: np.ndarray, k: np.ndarray, v: np.ndarray, slot: np.ndarray) -> Arrays:
    k_ring, v_ring = k_ring.copy(), v_ring.copy()
    k_ring[slot[0]] = k.transpose(1, 2, 0)
    v_ring[slot[0]] = v.transpose(1, 0, 2)
    return {"k_ring": k_ring, "v_ring": v_ring}


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, dtype: np.dtype, chunk: int = 128) -> np.ndarray:
    """Flash attention with a running maximum; probabilities are rounded to `dtype`. q [S, H, D]; k, v [L, H, D]."""
    scale = np.float32(q.shape[-1] ** -0.5)
    y = np.empty_like(q)
    for h in range(q.shape[1]):
        top = np.full((q.shape[0], 1), -np.inf, np.float32)
        total, out = np.zeros_like(top), np.zeros_like(q[:, h])
        for start in range(0, k.shape[0], chunk):
            logits = q[:, h] @ k[start : start + chunk, h].T * scale
            higher = np.maximum(top, logits.max(axis=1, keepdims=True))
            p, old = np.exp(logits - higher), np.exp(top - higher)
            total = total * old + p.sum(axis=1, keepdims=True)
            out = out * old + p.astype(dtype).astype(np.float32) @ v[start : start + chunk, h]
            top = higher
        y[:, h] = out / total
    return y


def rolling_attention(
    q: np.ndarray,
    k_own: np.ndarray,
    v_own: np.ndarray,
    k_ring: np.ndarray,
    v_ring: np.ndarray,
    slots: np.ndarray,
    n_past: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
) -> Arrays:
    used, dtype = slots[: n_past[0]], q.dtype
    heads = q.shape[1:]
    past_k = k_ring[used].transpose(0, 3, 1, 2).reshape(-1, *heads).astype(np.float32)
    past_v = v_ring[used].transpose(0, 2, 1, 3).reshape(-1, *heads)
    rows = past_k.shape[0]
    past_k = rotate(past_k, cos[:rows, None], sin[:rows, None]).astype(dtype)
    k, v = np.concatenate((past_k, k_own)), np.concatenate((past_v, v_own))
    return {"y": attention(*(a.astype(np.float32) for a in (q, k, v)), dtype).astype(dtype)}


BY_HAND = {"rope_3d": rope_3d, "kv_cache_update": kv_cache_update, "rolling_attention": rolling_attention}
