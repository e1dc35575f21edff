"""Adaptive layer norm of a diffusion transformer with one modulation per frame (arXiv 2212.09748, section 3.2)."""

import torch


def layer_norm_modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x [S, C]; shift, scale [F, C], row f for the S/F tokens of frame f -> y [S, C]."""
    rows = x.shape[0] // shift.shape[0]
    normed = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6)
    return (normed * (1 + scale.repeat_interleave(rows, 0)) + shift.repeat_interleave(rows, 0),)
