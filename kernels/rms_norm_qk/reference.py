"""Root mean square norm over all channels of a token (Zhang and Sennrich, arXiv 1910.07467)."""

import torch


def rms_norm_qk(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x [S, C]; weight [C] -> y [S, C]."""
    return (x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * weight,)
