"""One slot of the ring cache of a rolling video transformer: keys per head transposed, values natural."""

import torch


def kv_cache_update(
    k_ring: torch.Tensor, v_ring: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slot: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """k_ring [N, H, D, T], v_ring [N, H, T, D]; k, v [T, H, D]; slot [1] -> updated copies of both rings."""
    k_new, v_new = k_ring.clone(), v_ring.clone()
    k_new[int(slot)] = k.permute(1, 2, 0)
    v_new[int(slot)] = v.permute(1, 0, 2)
    return k_new, v_new
