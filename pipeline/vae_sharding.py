"""The VAE's decoder split by width over the ranks of a process group.

Each rank computes its own columns. A convolution that is three wide needs one column of each
neighbour, of its new input frames and of the cached ones; cached frames keep theirs, so only new
ones travel. The attention over a frame gathers that frame. Everything else is local, and the
arithmetic is that of one process up to the order of sums.

At 480x832 on 8 ranks a rank has 13 of 104 latent columns, and a latent frame takes 33 exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from nkismith.pipeline.errors import InputError
from nkismith.pipeline.ranks import rank_failures
from nkismith.pipeline.vae import Vae
from nkismith.pipeline.vae_layers import VaeState

POINT_TO_POINT_BACKENDS = ("gloo", "mpi", "nccl")
"""Backends of torch.distributed that can send to one rank; others, Neuron's among them, have only collectives."""


@dataclass
class VaeTraffic:
    """What one rank has sent to others, in bytes of payload; a gather counts once for every receiver."""

    halo: int = 0  # edge columns of convolutions
    attention: int = 0  # frames gathered for the attention
    pixels: int = 0  # decoded columns gathered
    exchanges: int = 0  # halo exchanges, each with up to two neighbours
    largest_edge: int = 0  # bytes of the largest column sent to one neighbour

    @property
    def total(self) -> int:
        return self.halo + self.attention + self.pixels


def split_width(columns: int, ranks: int) -> tuple[int, ...]:
    """Columns of each rank, left to right: as even as can be, the wider ones first.

    Raises: InputError if a rank would have none.
    """
    if ranks > columns:
        raise InputError(
            f"latents {columns} columns wide cannot be split over {ranks} ranks, each of which needs a column; "
            f"use at most {columns} ranks for the VAE"
        )
    return tuple(columns // ranks + (rank < columns % ranks) for rank in range(ranks))


class WidthShard:
    """The columns of one rank: a `Columns` for the VAE's layers.

    With `point_to_point` edges go to the two neighbours; without, all ranks gather all edges and keep their
    neighbours'. By default the group's backend decides.
    """

    padding = 0

    def __init__(
        self,
        columns: int,
        *,
        traffic: VaeTraffic,
        group: dist.ProcessGroup | None = None,
        point_to_point: bool | None = None,
    ):
        self.group = group
        self.rank = dist.get_rank(group)
        self.widths = split_width(columns, dist.get_world_size(group))
        self.traffic = traffic
        if point_to_point is None:
            point_to_point = dist.get_backend(group) in POINT_TO_POINT_BACKENDS
        self.point_to_point = point_to_point

    @property
    def own(self) -> slice:
        """Latent columns of this rank."""
        start = [0, *accumulate(self.widths)][self.rank]
        return slice(start, start + self.widths[self.rank])

    def with_halo(self, x: Tensor) -> Tensor:
        """[frames, channels, height, columns + 2]: the neighbours' edges, zeros at the edges of the video."""
        # In channels-last order a column is [frames, height, 1, channels]; views, no copies.
        y = x.permute(0, 2, 3, 1)
        left_edge, right_edge = y[:, :, :1].contiguous(), y[:, :, -1:].contiguous()
        exchange = self._send_to_neighbours if self.point_to_point else self._gather_edges
        with rank_failures("exchanging columns of the VAE"):
            before, after = exchange(left_edge, right_edge)
        self.traffic.exchanges += 1
        self.traffic.largest_edge = max(self.traffic.largest_edge, left_edge.nbytes)
        return torch.cat([before, y, after], dim=2).permute(0, 3, 1, 2)

    def whole(self, x: Tensor) -> Tensor:
        """The columns of all ranks, at the resolution of `x`."""
        gathered, sent = self._gather_columns(x)
        self.traffic.attention += sent
        return gathered

    def whole_pixels(self, pixels: Tensor) -> Tensor:
        """The decoded columns of all ranks, on every rank."""
        gathered, sent = self._gather_columns(pixels)
        self.traffic.pixels += sent
        return gathered

    def _send_to_neighbours(self, left_edge: Tensor, right_edge: Tensor) -> tuple[Tensor, Tensor]:
        before, after = torch.zeros_like(left_edge), torch.zeros_like(right_edge)
        operations = []
        for neighbour, edge, received in ((self.rank - 1, left_edge, before), (self.rank + 1, right_edge, after)):
            if 0 <= neighbour < len(self.widths):
                operations.append(dist.P2POp(dist.isend, edge, group=self.group, group_peer=neighbour))
                operations.append(dist.P2POp(dist.irecv, received, group=self.group, group_peer=neighbour))
                self.traffic.halo += edge.nbytes
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        return before, after

    def _gather_edges(self, left_edge: Tensor, right_edge: Tensor) -> tuple[Tensor, Tensor]:
        edges = torch.stack([left_edge, right_edge])
        everyone = [torch.empty_like(edges) for _ in self.widths]
        dist.all_gather(everyone, edges, group=self.group)
        self.traffic.halo += edges.nbytes * (len(self.widths) - 1)
        outside = torch.zeros_like(left_edge)
        before = everyone[self.rank - 1][1] if self.rank > 0 else outside
        after = everyone[self.rank + 1][0] if self.rank + 1 < len(self.widths) else outside
        return before, after

    def _gather_columns(self, x: Tensor) -> tuple[Tensor, int]:
        # Collectives want equal sizes: narrower ranks fill up, and the filling is cut off again.
        scale = x.shape[-1] // self.widths[self.rank]
        y = x.permute(0, 2, 3, 1)
        sent = F.pad(y, (0, 0, 0, scale * max(self.widths) - y.shape[2])).contiguous()
        everyone = [torch.empty_like(sent) for _ in self.widths]
        with rank_failures("gathering columns of the VAE"):
            dist.all_gather(everyone, sent, group=self.group)
        parts = [part[:, :, : scale * width] for part, width in zip(everyone, self.widths, strict=True)]
        return torch.cat(parts, dim=2).permute(0, 3, 1, 2), sent.nbytes * (len(self.widths) - 1)


class ShardedVae:
    """A VAE that decodes together with the other ranks of a group, in place of `Vae` on each of them.

    Every rank holds all weights and is given the same whole latents. `decode` returns the whole pixels on
    every rank, `decode_columns` only the rank's own. Encoding, for conditioning only, is not split.
    """

    def __init__(self, vae: Vae, group: dist.ProcessGroup | None = None, *, point_to_point: bool | None = None):
        self.vae = vae
        self.group = group
        self.point_to_point = point_to_point
        self.traffic = VaeTraffic()

    def new_state(self) -> VaeState:
        return self.vae.new_state()

    def decode(self, latents: Tensor, state: VaeState | None = None, *, together: int = 1) -> Tensor:
        """As `Vae.decode`; all ranks of the group must call it with the same latents.

        Raises: InputError as there, or if there are more ranks than columns; RankFailed if another rank stopped.
        """
        shard = self._shard(latents)
        return shard.whole_pixels(self._decode(latents, state, shard, together))

    def decode_columns(self, latents: Tensor, state: VaeState | None = None, *, together: int = 1) -> Tensor:
        """The pixels [frames, 3, 8h, 8 * own columns] of this rank, which are not gathered."""
        return self._decode(latents, state, self._shard(latents), together)

    def encode(self, pixels: Tensor) -> Tensor:
        return self.vae.encode(pixels)

    def _shard(self, latents: Tensor) -> WidthShard:
        return WidthShard(latents.shape[-1], traffic=self.traffic, group=self.group, point_to_point=self.point_to_point)

    def _decode(self, latents: Tensor, state: VaeState | None, shard: WidthShard, together: int) -> Tensor:
        return self.vae.decode(latents[..., shard.own], state, columns=shard, together=together)
