"""Cross-attention of video tokens to the prompt."""

import torch


def cross_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """q [S, H, D]; k, v [L, H, D] -> y [S, H, D]."""
    # [1, H, tokens, D] is the layout whose CPU kernel never holds all logits; it scales them by 1/sqrt(D).
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
    return (torch.nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1),)
