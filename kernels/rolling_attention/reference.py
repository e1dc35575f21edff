"""Self-attention of a rolling video transformer over a ring of past blocks and the window's own keys."""

import torch


def rolling_attention(
    q: torch.Tensor,
    k_own: torch.Tensor,
    v_own: torch.Tensor,
    k_ring: torch.Tensor,
    v_ring: torch.Tensor,
    slots: torch.Tensor,
    n_past: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """q [S, H, D]; k_own, v_own [L, H, D]; k_ring [N, H, D, T], v_ring [N, H, T, D]; slots [P]; n_past [1];
    cos, sin [P*T, D/2] of the past tokens -> y [S, H, D]."""
    used = slots[: int(n_past)].long()
    past_k = k_ring[used].permute(0, 3, 1, 2).flatten(0, 1)  # [n_past*T, H, D], not rotated yet
    past_v = v_ring[used].permute(0, 2, 1, 3).flatten(0, 1)
    c, s = (table[: past_k.shape[0], None, :] for table in (cos, sin))
    even, odd = past_k[..., 0::2], past_k[..., 1::2]
    past_k = torch.stack((even * c - odd * s, even * s + odd * c), dim=-1).flatten(-2)
    k, v = torch.cat((past_k, k_own)), torch.cat((past_v, v_own))
    # [1, H, tokens, D] is the layout whose CPU kernel never holds all logits; it scales them by 1/sqrt(D).
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
    return (torch.nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1),)
