"""The words the model gets: system part, task, and the turn that follows a verdict or a profile.

Templates are Jinja2 with StrictUndefined: a variable that is missing is an error, not an empty string.
Everything a template states about the hardware comes from `verify.simulator.hardware`, everything
about an instruction from its card; the prompt has no numbers of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from nkismith.kernels.spec import OpSpec
from nkismith.prompts import kinds
from nkismith.prompts.contract import Contract, describe
from nkismith.verify.lint.rule import RULES, Rule
from nkismith.verify.simulator import hardware, instructions
from nkismith.verify.simulator.dtypes import DTYPES
from nkismith.verify.simulator.operators import ACTIVATIONS, ALU
from nkismith.verify.simulator.sdk import RELEASES

_HERE = Path(__file__).parent
LESSONS = 6
"""How many lessons a prompt shows: more dilute the task."""


@dataclass(frozen=True)
class Prompt:
    """What a model gets. `system` and `task` are the same for every attempt of a run and can be cached."""

    system: str
    task: str
    turn: str = ""

    @property
    def text(self) -> str:
        """The whole prompt as one document, as `nkismith prompt` prints it and a hand-off writes it."""
        return "\n\n".join(part.strip() for part in (self.system, self.task, self.turn) if part) + "\n"

    @property
    def tokens(self) -> int:
        """Size estimate: three bytes a token, which is on the high side for English and Python."""
        return len(self.text.encode()) // 3

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Prompt:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Failure:
    """Why a draft was refused: the verdict's words, or what was wrong with the reply (stage "reply").

    rule is the lint or legality rule behind the reason code, if there is one.
    """

    stage: str
    reason: str
    message: str
    rule: str = ""
    fix: str = ""
    line: int | None = None
    case: str | None = None


@dataclass(frozen=True)
class Tried:
    """One earlier attempt in one line: its number, what was changed, what came out."""

    attempt: int
    change: str
    outcome: str


@dataclass(frozen=True)
class HotLine:
    """A source line on the critical path: its number, its text, its slowest instruction, microseconds."""

    line: int
    text: str
    opcode: str
    time_us: float


@dataclass(frozen=True)
class Measure:
    """A profile as an optimisation prompt shows it. Times in microseconds at `case`, label as the profile says.

    bound is what sets the floor; busiest the engine (or dma) that is active longest; active the active time of each.
    """

    label: str
    case: str
    latency_us: float
    low_us: float
    high_us: float
    floor_us: float
    bound: str
    busiest: str
    active: dict[str, float]
    diagnosis: tuple[str, ...]
    transfers: int
    contiguous_bytes: float
    hbm_read_bytes: float
    hbm_write_bytes: float
    sbuf_peak_bytes: float
    psum_peak_bytes: float
    spill_bytes: float
    instructions: int
    hot: tuple[HotLine, ...]


def first(spec: OpSpec, *, target: str, sdk: str, lnc: int, lessons: Sequence[str] = ()) -> Prompt:
    """The prompt of a first draft of `spec`."""
    machine = hardware.target(target)
    contract = describe(spec, machine, lnc)
    tags = kinds.tags(spec)
    names = kinds.instructions(tags, target)
    system = _render(
        "system.md.j2",
        machine=machine,
        hardware=hardware,
        sdk=sdk,
        nki=RELEASES[sdk],
        lnc=lnc,
        rules=_rules(sdk),
        alu=", ".join(f"nl.{op.name}" for op in ALU.values() if target in op.targets and op.name != "bypass"),
        activations=", ".join(f"nl.{name}" for name in ACTIVATIONS if name != "prelu" and not name.endswith("_dx")),
    )
    task = _render(
        "task.md.j2",
        contract=contract,
        reference=(spec.folder / "reference.py").read_text().strip(),
        cards=instructions.cards(names, sdk, target),
        examples=[_example(name) for name in kinds.examples(tags)],
        tags=tags,
        lessons=list(lessons)[:LESSONS],
        machine=machine,
        lnc=lnc,
    )
    return Prompt(system, task)


def revision(base: Prompt, *, failure: Failure, source: str, tried: Sequence[Tried]) -> Prompt:
    """The prompt after a refusal. `source` is the refused draft, "" if the reply held none."""
    turn = _render(
        "revise.md.j2",
        failure=failure,
        source=source.strip(),
        excerpt=_excerpt(source, failure.line) if source and failure.line else "",
        tried=list(tried),
    )
    return Prompt(base.system, base.task, turn)


def optimisation(
    base: Prompt, *, source: str, measure: Measure, tried: Sequence[Tried], gain: float, lessons: Sequence[str] = ()
) -> Prompt:
    """The prompt that asks for a faster version of a verified draft; `gain` is the least speed-up that counts."""
    turn = _render(
        "optimise.md.j2", source=source.strip(), measure=measure, tried=list(tried), gain=gain, lessons=list(lessons)
    )
    return Prompt(base.system, base.task, turn)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
    )
    environment.filters["operands"] = _operands
    environment.filters["kib"] = lambda count: f"{count / 1024:,.0f} KiB"
    environment.filters["us"] = lambda value: f"{value:,.1f} µs"
    environment.filters["mb"] = lambda count: f"{count / 1e6:,.2f} MB"
    return environment


def _operands(lines: Sequence[str]) -> str:
    """A card's operands on one line; a list of nearly all dtypes tells nothing and costs hundreds of tokens."""
    names = "|".join(map(re.escape, sorted(DTYPES, key=len, reverse=True)))
    return "; ".join(re.sub(rf"(?:(?:{names})(?:, |$)){{8,}}", "any ordinary dtype", line) for line in lines)


def _render(name: str, **values: Any) -> str:
    return _environment().get_template(name).render(**values)


def _rules(sdk: str) -> list[Rule]:
    """The lint rules that apply to an SDK, less those that the contract above them states in full."""
    release = tuple(int(part) for part in sdk.split("."))
    stated = {"parse", "entry", "signature"}
    return [
        rule for rule in RULES.values() if rule.name not in stated and (rule.before is None or release < rule.before)
    ]


def _example(name: str) -> dict[str, str]:
    return {"name": name, "source": (_HERE / "examples" / f"{name}.py").read_text().strip()}


def _excerpt(source: str, line: int, around: int = 3) -> str:
    """The lines around the offending one, numbered as the verdict numbers them, with an arrow at it."""
    lines = source.splitlines()
    first, last = max(1, line - around), min(len(lines), line + around)
    return "\n".join(
        f"{'>' if number == line else ' '} {number:4d}  {lines[number - 1]}" for number in range(first, last + 1)
    )


def contract_of(spec: OpSpec, target: str, lnc: int) -> Contract:
    """The spec as the prompt states it."""
    return describe(spec, hardware.target(target), lnc)
