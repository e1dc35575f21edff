"""What the layers of one forward call share: where each of its passes reads and writes, and at which angles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nkismith.pipeline.config import BLOCK_FRAMES, Config
from nkismith.pipeline.ops import Ops
from nkismith.pipeline.ring import Ring
from nkismith.pipeline.rope import rope_table
from nkismith.pipeline.schedule import Pass
from nkismith.pipeline.sharding import Layout


@dataclass(frozen=True)
class Reads:
    """The part of one pass in a call: its frames and its blocks in the ring."""

    frames: slice
    slot: Tensor | None  # int32 [1], where an update pass keeps its keys and values
    slots: Tensor  # int32 [n_max], n_past: the past blocks it attends to, as `rolling_attention` takes them
    n_past: Tensor


@dataclass(frozen=True)
class Call:
    """What all layers of one forward call share."""

    ops: Ops
    layout: Layout
    ring: Ring
    reads: tuple[Reads, ...]
    q_angles: tuple[Tensor, Tensor]  # cos, sin [F * query tokens, D/2] of the queries attended on this rank
    k_angles: tuple[Tensor, Tensor]  # of all own keys
    past_angles: tuple[Tensor, Tensor]  # of the past blocks of a pass, in their order

    @classmethod
    def of(cls, config: Config, passes: Sequence[Pass], ring: Ring, ops: Ops, layout: Layout) -> Call:
        """Resolve the passes of a call. Claims the ring slots of update passes, in order.

        An update pass comes before the passes that read what it writes.
        """
        table = rope_table(config)
        reads: list[Reads] = []
        positions: list[int] = []
        begin = 0
        for a_pass in passes:
            slots = ring.slots(a_pass.past)
            slot = torch.tensor([ring.claim(a_pass.first)], dtype=torch.int32) if a_pass.writes else None
            n_past = torch.tensor([len(a_pass.past)], dtype=torch.int32)
            frames = a_pass.blocks * BLOCK_FRAMES
            reads.append(Reads(slice(begin, begin + frames), slot, slots, n_past))
            offset = len(a_pass.past) * BLOCK_FRAMES
            positions += range(offset, offset + frames)
            begin += frames
        own = [angles[positions] for angles in (table.cos, table.sin)]
        queries = layout.query_tokens(config.frame_tokens)
        past_frames = slots.numel() * BLOCK_FRAMES
        return cls(
            ops,
            layout,
            ring,
            tuple(reads),
            (own[0][:, queries].flatten(0, 1), own[1][:, queries].flatten(0, 1)),
            (own[0].flatten(0, 1), own[1].flatten(0, 1)),
            (table.cos[:past_frames].flatten(0, 1), table.sin[:past_frames].flatten(0, 1)),
        )
