"""What a model call costs. The numbers are data (`prices.toml`); a model without a price is an error."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("prices.toml")


class PriceError(Exception):
    """No usable price for a model; the message says where to add one."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one call as the provider counted them; input excludes what went through the cache."""

    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_write_tokens + self.cache_read_tokens


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens; `long` replaces it for prompts above `long_above` tokens."""

    input: float
    cache_write: float
    cache_read: float
    output: float
    long: Price | None = None
    long_above: int = 0

    def usd(self, usage: Usage) -> float:
        """Dollars for one call."""
        if self.long and usage.prompt_tokens > self.long_above:
            return self.long.usd(usage)
        return (
            usage.input_tokens * self.input
            + usage.cache_write_tokens * self.cache_write
            + usage.cache_read_tokens * self.cache_read
            + usage.output_tokens * self.output
        ) / 1e6

    def at_most(self, input_tokens: int) -> tuple[float, float]:
        """(dollars for a prompt of at most this many tokens, dollars per output token), both upper bounds."""
        price = self.long if self.long and input_tokens > self.long_above else self
        return input_tokens * max(price.input, price.cache_write) / 1e6, price.output / 1e6


FREE = Price(0.0, 0.0, 0.0, 0.0)
"""For replies that are not bought here: hand-off and recordings."""


def find(model: str, provider: str) -> Price:
    """Price of `model` at `provider` (anthropic or bedrock). Raises PriceError for a model without one."""
    tables = [tomllib.loads(_TABLE.read_text())]
    if extra := os.environ.get("NKISMITH_PRICES"):
        try:
            tables.insert(0, tomllib.loads(Path(extra).read_text()))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise PriceError(f"NKISMITH_PRICES={extra}: {error}. It must be a TOML file like {_TABLE}.") from None
    # Bedrock puts a region and the maker in front and a revision behind: us.anthropic.claude-opus-5-5-v1:0.
    plain = re.sub(r"^(?:[a-z]+\.)?anthropic\.|-v\d+(?::\d+)?$|-20\d{6}(?=$|-v)", "", model)
    for table in tables:
        for name in (model, plain):
            if entry := table.get("models", {}).get(name):
                price = _price(entry, name)
                return _scaled(price, table.get("bedrock", {}).get("premium", 1.10)) if provider == "bedrock" else price
    known = ", ".join(sorted(tables[-1]["models"]))
    raise PriceError(
        f"No price for model {model!r}, so no budget could hold. Known models: {known}. For another one, write its "
        f"prices to a file like {_TABLE} and set NKISMITH_PRICES to it."
    )


def _price(entry: dict[str, Any], name: str) -> Price:
    try:
        price = _rates(entry)
        if long := entry.get("long_prompt"):
            price = replace(price, long=_rates(long), long_above=int(long["above_tokens"]))
    except KeyError as error:
        raise PriceError(
            f"The price of {name!r} lacks {error}; an entry needs input, cache_write, cache_read and output."
        ) from None
    return price


def _rates(entry: dict[str, Any]) -> Price:
    return Price(float(entry["input"]), float(entry["cache_write"]), float(entry["cache_read"]), float(entry["output"]))


def _scaled(price: Price, factor: float) -> Price:
    return Price(
        price.input * factor,
        price.cache_write * factor,
        price.cache_read * factor,
        price.output * factor,
        price.long and _scaled(price.long, factor),
        price.long_above,
    )
