import torch


def row_softmax(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x [R, C] -> softmax over the last axis."""
    return (torch.softmax(x, dim=-1),)
