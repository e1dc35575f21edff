"""Keys and values of the blocks that can still be read, in a ring of eight slots a layer.

Block 0 keeps slot 0 for ever; the others take turns in the remaining seven, so that writing a block
replaces the one that has just left the attention span, and nothing is ever moved.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nkismith.pipeline.config import RING_SLOTS, SPAN_BLOCKS, Config


def slot_of(block: int) -> int:
    """The ring slot a block is kept in."""
    return 0 if block == 0 else 1 + (block - 1) % SPAN_BLOCKS


class Ring:
    """The cache of one generation.

    k: [layers, slots, H, D, T], keys before rotation, transposed so that no kernel has to.
    v: [layers, slots, H, T, D].
    bytes_written: of keys and values, over all layers; nothing but whole blocks is ever written.
    """

    def __init__(self, config: Config, heads: int) -> None:
        """Args: heads: those of this rank; config.num_heads on a single one."""
        sizes = (config.num_layers, RING_SLOTS, heads)
        dtype = getattr(torch, config.dtype)
        self.k = torch.zeros(*sizes, config.head_dim, config.block_tokens, dtype=dtype)
        self.v = torch.zeros(*sizes, config.block_tokens, config.head_dim, dtype=dtype)
        self.bytes_written = 0
        self._held: list[int | None] = [None] * RING_SLOTS

    @property
    def held(self) -> tuple[int, ...]:
        """The blocks whose keys and values are here, in order."""
        return tuple(sorted(block for block in self._held if block is not None))

    def claim(self, block: int) -> int:
        """Make a block the holder of its slot, which the caller is about to write; returns the slot."""
        slot = slot_of(block)
        self._held[slot] = block
        self.bytes_written += self.k[:, slot].nbytes + self.v[:, slot].nbytes
        return slot

    def slots(self, past: tuple[int, ...]) -> Tensor:
        """Slots of some blocks as int32 [SPAN_BLOCKS - 1]; entries after the last block are slot 0.

        Raises: KeyError if a block has left the ring, or was never written.
        """
        for block in past:
            if self._held[slot_of(block)] != block:
                raise KeyError(f"block {block} is not in the ring, which holds {self.held}")
        padded = [slot_of(block) for block in past] + [0] * (SPAN_BLOCKS - 1 - len(past))
        return torch.tensor(padded, dtype=torch.int32)
