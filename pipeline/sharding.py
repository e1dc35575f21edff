"""How the tokens and heads of a call are spread over ranks.

Outside self-attention a rank has a share of the tokens of every frame, with all channels: norms over
all heads, projections, cross-attention and the MLP need nothing from other ranks. For self-attention
the heads are split over a head group and the queries over (at most two) such groups:

    own tokens, all heads --all-to-all in the head group--> own heads, own half of the tokens
    keys and values      --from the partner in the other group--> own heads, all tokens
    attended             --all-to-all in the head group--> own tokens, all heads

Rank = head_ranks * (query half) + (share of the heads). Each rank keeps the ring of its own heads.
Twelve heads on eight ranks: four shares of three heads, two halves of the queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from nkismith.pipeline.config import Config
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.ranks import rank_failures

QUERY_SPLITS = (1, 2)
"""Groups the queries may be split over: each keeps all keys of its heads, so more would repeat more."""


class Layout:
    """All tokens and all heads on one rank: nothing moves."""

    rank = 0
    ranks = 1
    head_ranks = 1

    def own_tokens(self, x: Tensor) -> Tensor:
        """This rank's share of every frame of x [F, tokens, ...]."""
        return x

    def query_tokens(self, frame_tokens: int) -> slice:
        """The tokens of each frame whose queries attend on this rank, after `to_heads`."""
        return slice(0, frame_tokens)

    def to_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All heads of own tokens, each [F, n, H, D], to own heads: q of `query_tokens`, k and v of all tokens."""
        return q, k, v

    def to_tokens(self, y: Tensor) -> Tensor:
        """Own heads of `query_tokens` to all heads of own tokens, [F, n, H, D]."""
        return y

    def gather_tokens(self, x: Tensor) -> Tensor:
        """Own tokens [F, n, ...] of every rank to all tokens of each frame."""
        return x

    def agree(self, flags: Sequence[bool]) -> list[bool]:
        """The flags of the first rank, on every rank."""
        return list(flags)

    def broadcast(self, x: Tensor) -> Tensor:
        """The tensor of the first rank, on every rank."""
        return x


def head_ranks(config: Config, ranks: int) -> int:
    """Over how many ranks the heads are split when there are `ranks` in all: as many as possible.

    Raises: InputError if the heads or the tokens of a frame do not divide, naming the counts that work.
    """
    fitting = {
        heads * queries: heads
        for queries in reversed(QUERY_SPLITS)
        for heads in range(1, config.num_heads + 1)
        if config.num_heads % heads == 0 and config.frame_tokens % (heads * queries) == 0
    }
    if ranks not in fitting:
        raise InputError(
            f"{ranks} ranks do not fit {config.name}: its {config.num_heads} heads are split evenly, the queries over "
            f"at most {max(QUERY_SPLITS)} groups, and the {config.frame_tokens} tokens of a frame over all ranks. "
            f"Possible: {', '.join(map(str, sorted(fitting)))}"
        )
    return fitting[ranks]


@dataclass
class Traffic:
    """Bytes of the buffers that one rank got from collectives, by what they held; a rank's own part included
    where it is part of the buffer."""

    heads: int = 0  # q, k, v of own heads from the head group
    partner: int = 0  # k, v of the other half of the tokens; without the own half, which is not sent
    tokens: int = 0  # attended heads of own tokens
    flow: int = 0  # the model's output, once a call
    copied: int = 0  # written to put buffers in order before and after


class RankLayout(Layout):
    """The share of one rank in the default process group."""

    def __init__(self, config: Config) -> None:
        """Raises: InputError if the config cannot be split over the ranks there are."""
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.head_ranks = head_ranks(config, self.ranks)
        self.query_group, self.head_share = divmod(self.rank, self.head_ranks)
        self.query_groups = self.ranks // self.head_ranks
        self.traffic = Traffic()
        # Every rank must take part in making every group, in the same order.
        head_groups = [
            dist.new_group(range(first, first + self.head_ranks)) for first in range(0, self.ranks, self.head_ranks)
        ]
        partners = [dist.new_group(range(share, self.ranks, self.head_ranks)) for share in range(self.head_ranks)]
        self._head_group, self._partners = head_groups[self.query_group], partners[self.head_share]

    def own_tokens(self, x: Tensor) -> Tensor:
        n = x.shape[1] // self.ranks
        return x[:, self.rank * n : (self.rank + 1) * n]

    def query_tokens(self, frame_tokens: int) -> slice:
        n = frame_tokens // self.query_groups
        return slice(self.query_group * n, (self.query_group + 1) * n)

    def to_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shares = self._stacked(q, k, v).unflatten(3, (self.head_ranks, -1))  # [3, F, n, shares, h, D]
        received = self._all_to_all(shares.permute(3, 0, 1, 2, 4, 5))  # [sources, 3, F, n, h, D]
        self.traffic.heads += received.nbytes
        q, k, v = self._ordered(received.permute(1, 2, 0, 3, 4, 5)).flatten(2, 3)  # [3, F, half, h, D]
        if self.query_groups == 1:
            return q, k, v
        halves = self._all_gather(self._stacked(k, v), self._partners)  # [halves, 2, F, half, h, D]
        self.traffic.partner += halves.nbytes - halves[0].nbytes
        k, v = self._ordered(halves.permute(1, 2, 0, 3, 4, 5)).flatten(2, 3)
        return q, k, v

    def to_tokens(self, y: Tensor) -> Tensor:
        owners = y.unflatten(1, (self.head_ranks, -1))  # [F, owners, n, h, D]
        received = self._all_to_all(owners.transpose(0, 1))  # [shares of the heads, F, n, h, D]
        self.traffic.tokens += received.nbytes
        return self._ordered(received.permute(1, 2, 0, 3, 4)).flatten(2, 3)

    def gather_tokens(self, x: Tensor) -> Tensor:
        gathered = self._all_gather(x, None)  # [ranks, F, n, ...]
        self.traffic.flow += gathered.nbytes
        return gathered.transpose(0, 1).flatten(1, 2)

    def agree(self, flags: Sequence[bool]) -> list[bool]:
        return self.broadcast(torch.tensor(flags)).tolist()

    def broadcast(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        with rank_failures("receiving from the first rank"):
            dist.broadcast(x.view(torch.uint8), src=0)
        return x

    def _all_to_all(self, x: Tensor) -> Tensor:
        """Row i of x to rank i of the head group; returns the rows received."""
        x = self._ordered(x)
        received = torch.empty_like(x)
        with rank_failures("exchanging heads"):
            dist.all_to_all_single(received.view(torch.uint8), x.view(torch.uint8), group=self._head_group)
        return received

    def _all_gather(self, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        """x of every rank of a group, as rows."""
        x = x.contiguous()
        gathered = x.new_empty((dist.get_world_size(group), *x.shape))
        with rank_failures("gathering tokens"):
            dist.all_gather(list(gathered.view(torch.uint8)), x.view(torch.uint8), group=group)
        return gathered

    def _stacked(self, *tensors: Tensor) -> Tensor:
        self.traffic.copied += sum(tensor.nbytes for tensor in tensors)
        return torch.stack(tensors)

    def _ordered(self, x: Tensor) -> Tensor:
        """x laid out in the order of its axes; a copy, if it is one, is counted."""
        if not x.is_contiguous():
            self.traffic.copied += x.nbytes
        return x.contiguous()
