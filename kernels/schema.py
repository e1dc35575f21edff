"""The parts of spec.yaml, one class a section. Unknown keys are errors that name the nearest known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Size = int | str  # a number, or an expression over dims


class Part(BaseModel):
    """Base of every section: immutable, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            known = [f.alias or name for name, f in cls.model_fields.items()]
            for key in data:
                if key not in known:
                    raise ValueError(f"unknown key {str(key)!r}{nearest(key, known)} Keys here: {', '.join(known)}")
        return data


def nearest(word: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: ". Did you mean 'x'?", or only its full stop."""
    close = difflib.get_close_matches(str(word), list(known), n=2, cutoff=0.6)
    return f". Did you mean {' or '.join(map(repr, close))}?" if close else "."


class Dim(Part):
    """The sizes one dim may have: `max` (with `min`, `multiple_of`), or `one_of`."""

    min: int = Field(default=1, ge=1)
    max: int | None = None
    one_of: tuple[int, ...] | None = None
    multiple_of: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _one_form(self) -> Dim:
        if (self.max is None) == (self.one_of is None):
            raise ValueError("give either max (and min) or one_of")
        if self.max is not None and self.max // self.multiple_of * self.multiple_of < self.min:
            raise ValueError(f"no size fits {self.text}")
        if self.one_of is not None and (not self.one_of or min(self.one_of) < 1):
            raise ValueError("one_of must list sizes of at least 1")
        return self

    def allows(self, size: int) -> bool:
        if self.one_of is not None:
            return size in self.one_of
        return self.max is not None and self.min <= size <= self.max and size % self.multiple_of == 0

    @property
    def text(self) -> str:
        """The domain in words, for messages and prompts."""
        if self.one_of is not None:
            return f"one of {', '.join(map(str, self.one_of))}"
        return f"{self.min}..{self.max}" + (f", a multiple of {self.multiple_of}" if self.multiple_of > 1 else "")


class Values(Part):
    """How a float input is drawn.

    normal: `mean`, `std`; uniform: low..high; positive: |normal| + 0.1; one_hot: a single 1 in each row.
    infinities: some elements may be +inf or -inf.
    """

    kind: Literal["normal", "uniform", "positive", "one_hot"] = "normal"
    mean: float = 0.0
    std: float = Field(default=1.0, gt=0)
    low: float | None = None
    high: float | None = None
    infinities: bool = False

    @model_validator(mode="after")
    def _bounded(self) -> Values:
        if self.kind == "uniform" and (self.low is None or self.high is None or self.low >= self.high):
            raise ValueError("kind uniform needs low < high")
        if self.kind != "uniform" and (self.low is not None or self.high is not None):
            raise ValueError(f"kind {self.kind} takes no low or high")
        return self


def _as_lines(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


RelationLines = Annotated[tuple[str, ...], BeforeValidator(_as_lines)]


class Ulp(Part):
    """Units in the last place of the output's dtype."""

    ulp: int = Field(ge=1)


class ValidChoice(Part):
    """Judge an index by the value it picks along the last axis of this input or output."""

    valid_choice: str


Match = Literal["close", "exact", "valid_choice"] | Ulp | ValidChoice


class Input(Part):
    """values: a `Values` mapping for floats, relations such as "0 <= ids < V" for integers.

    match: how an in_place input is judged after the call; what the reference leaves alone must keep its bits anyway.
    """

    shape: tuple[Size, ...] = Field(min_length=1)
    dtype: str | tuple[str, ...]
    values: Annotated[Values | tuple[str, ...] | None, BeforeValidator(_as_lines)] = None
    match: Match = "close"


class Output(Part):
    """match: `close` (tolerance by dtype), `exact` (bit equal), `{ulp: n}`, or `{valid_choice: NAME}`.

    An index along the last axis of NAME is right if the value it picks ties with the reference's. Plain
    `valid_choice` means the first float input.
    """

    shape: tuple[Size, ...] = Field(min_length=1)
    dtype: str
    match: Match = "close"


class Tolerance(Part):
    """An override: the derived error bound is multiplied by `factor`, for a stated reason."""

    factor: float = Field(gt=0)
    reason: str = Field(min_length=10)


class Limits(Part):
    """constants: how many literal numbers a kernel may embed as data (identity matrices are not counted)."""

    constants: int = Field(default=4096, ge=0)


class Work(Part):
    """What any kernel for this op must do; the floor comes from this and the hardware alone.

    Bytes for hbm_*, elements for vector, scalar and gpsimd, FLOP (2 per multiply-add) for matmul. Expressions over
    dims, `b` (bytes per element of the case dtype), `NAME.itemsize`, and run-time scalars of one element.
    """

    hbm_read: Size
    hbm_write: Size
    vector: Size = 0
    scalar: Size = 0
    gpsimd: Size = 0
    matmul: Size = 0


class CaseLists(Part):
    """Each case gives a size per dim, and optionally `dtype`, `control` and `label`."""

    smoke: tuple[dict[str, Any], ...] = Field(min_length=1)
    edge: tuple[dict[str, Any], ...] = ()
    production: tuple[dict[str, Any], ...] = ()
