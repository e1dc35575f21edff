"""Cross-attention of video tokens to the prompt."""

import torch


def cross_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """q [S, H, D]; k, v [L, H, D] -> y [S, H, D]."""
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    return (torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(0, 1),)
