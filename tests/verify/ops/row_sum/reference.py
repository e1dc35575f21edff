import torch


def row_sum(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x [R, C] -> [R, 1] float32 (or wider)."""
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide.sum(dim=1, keepdim=True),)
