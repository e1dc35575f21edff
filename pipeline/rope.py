"""Rotary positions over frames, rows and columns.

Keys are kept without rotation and every pass attends to consecutive frames (the sink is rotated as
if it came just before the blocks that follow it), so positions are counted from the oldest key of
the pass: attention depends on differences only. One table of the attention span therefore serves
videos of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nkismith.pipeline.config import BLOCK_FRAMES, SPAN_BLOCKS, Config


@dataclass(frozen=True)
class RopeTable:
    """Cosines and sines of the positions a pass can hold, each [SPAN_FRAMES, frame_tokens, D/2] float32."""

    cos: Tensor
    sin: Tensor


def axis_pairs(head_dim: int) -> tuple[int, int, int]:
    """How many of the D/2 channel pairs rotate by frame, row and column: (22, 21, 21) for D = 128."""
    third = head_dim // 6
    return head_dim // 2 - 2 * third, third, third


def rope_table(config: Config, frames: int = SPAN_BLOCKS * BLOCK_FRAMES) -> RopeTable:
    """Angles of every token of `frames` consecutive frames.

    Token (f, y, x) rotates its pair j by f*w_j, y*w_j or x*w_j, with w_j = 10000^(-2j/n) counted within
    the n channels of the axis. Computed in float64 and rounded once.
    Source: RoFormer, arXiv 2104.09864, section 3.2, with the channel split of Wan2.1.
    """
    position = [torch.arange(n, dtype=torch.float64) for n in (frames, config.rows, config.cols)]
    angles = []
    for axis, pairs in enumerate(axis_pairs(config.head_dim)):
        frequency = 10000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        shape = [1, 1, 1, pairs]
        shape[axis] = len(position[axis])
        along_axis = torch.outer(position[axis], frequency).view(shape)
        angles.append(along_axis.expand(frames, config.rows, config.cols, pairs))
    angle = torch.cat(angles, dim=-1).flatten(1, 2)
    return RopeTable(angle.cos().float(), angle.sin().float())
