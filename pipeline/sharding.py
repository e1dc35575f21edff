"""How the tokens and heads of a call are spread over ranks.

This module's `Layout` is the single rank, where nothing moves.
"""

from __future__ import annotations

from torch import Tensor


class Layout:
    """All tokens and all heads on one rank."""

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

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """The flags of the first rank, on every rank."""
        return flags

    def broadcast(self, x: Tensor) -> Tensor:
        """The tensor of the first rank, on every rank."""
        return x
