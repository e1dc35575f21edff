"""Feed-forward layer with the tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415)."""

import torch


def gelu_mlp(
    x: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """x [S, C]; w1 [C, I], b1 [I]; w2 [I, C], b2 [C] -> y [S, C]."""
    return (torch.nn.functional.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2,)
