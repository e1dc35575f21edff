"""3D rotary position embedding on adjacent channel pairs (RoFormer, arXiv 2104.09864; channel split as in Wan 2.1)."""

import torch


def rope_3d(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x [S, H, D]; cos, sin [S, D/2], shared by all heads -> y [S, H, D]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    c, s = cos[:, None, :], sin[:, None, :]
    return (torch.stack((even * c - odd * s, even * s + odd * c), dim=-1).flatten(-2),)
