import torch


def set_row(table: torch.Tensor, row: torch.Tensor, slot: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """table [N, C], row [C], slot [1] -> updated copy of the table."""
    changed = table.clone()
    changed[int(slot)] = row
    return (changed,)
