import torch


def scale_add(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x, y [R, C] -> 2x + y."""
    return (2 * x + y,)
