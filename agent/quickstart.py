"""The tour: three ops from spec to accepted kernel, then a short video that runs on exactly those kernels.

The replies come from recordings of real conversations, and say so; everything that happens to them
happens now: lint, recording, legality, execution, comparison, profile, acceptance, and the video is
compared with the same run on plain PyTorch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nkismith.agent import loop
from nkismith.agent.ledger import Caps
from nkismith.agent.run import Outcome, Plan
from nkismith.kernels import spec as specs
from nkismith.prompts.contract import production
from nkismith.results import report
from nkismith.results.store import RunStore, data_root

OPS = ("rope_3d", "kv_cache_update", "rolling_attention")


@dataclass(frozen=True)
class OpResult:
    """One op of the tour. Times are modelled microseconds at the production case; error is over all cases."""

    op: str
    attempts: int
    verdict: str
    source: str
    case: str
    latency_us: float | None
    floor_us: float | None
    max_ratio: float | None
    kernel: str
    report: str


@dataclass(frozen=True)
class Tour:
    """What the tour found and wrote. relative_l2 compares the latents of the two runs of the video."""

    passed: bool
    ops: tuple[OpResult, ...]
    video: str
    frames: int
    relative_l2: float
    limit: float
    seconds: float
    folder: str


@dataclass(frozen=True)
class Clips:
    """The video, made once on the tour's kernels and once on PyTorch.

    relative_l2 is between the final latents; limit is what counts as equal for their dtype.
    """

    video: Path
    frames: int
    dtype: str
    relative_l2: float
    limit: float


class TourError(Exception):
    """The tour cannot go on; the message says at which step and what to do."""


def run(out: Path | None, *, film: Callable[[Path, Path], Clips], console: Console) -> Tour:
    """Walk the tour into `out` (default: a fresh folder below the data folder).

    film(kernels, video) renders the clips on the kernels accepted in the folder `kernels` and writes the file `video`;
    it is handed in because the loop knows nothing of the pipeline.
    """
    begin = time.perf_counter()
    folder = out or data_root() / f"quickstart-{datetime.now():%Y%m%d-%H%M%S}"
    if folder.exists() and any(folder.iterdir()):
        raise TourError(f"{folder} is not empty. Name a new folder, so that nothing of yours is mixed with the tour's.")
    folder.mkdir(parents=True, exist_ok=True)
    kernels = folder / "kernels"
    console.rule("1 of 2: three kernels, from spec to accepted")
    results = tuple(_op(op, folder, kernels, console) for op in OPS)
    refused = [result for result in results if result.verdict != "accepted"]
    if refused:
        raise TourError(
            f"No kernel was accepted for {', '.join(result.op for result in refused)}. "
            f"See {', '.join(result.report for result in refused)}."
        )
    console.rule("2 of 2: a video on those kernels, against PyTorch")
    clips = film(kernels, folder / "video.mp4")
    tour = Tour(
        passed=clips.relative_l2 <= clips.limit,
        ops=results,
        video=str(clips.video),
        frames=clips.frames,
        relative_l2=clips.relative_l2,
        limit=clips.limit,
        seconds=time.perf_counter() - begin,
        folder=str(folder),
    )
    _tell(tour, clips.dtype, console)
    return tour


def _op(op: str, folder: Path, kernels: Path, console: Console) -> OpResult:
    spec = specs.load(op)
    plan = Plan(
        op=op,
        spec=str(spec.folder),
        provider="recording",
        kernels_root=str(kernels),
        use_lessons=False,
        # The tour shows the way; a kernel that ships goes through `accept`, where weak isolation must be allowed.
        allow_weak_isolation=True,
        caps=Caps(usd=0.0, attempts=6),
    )
    console.print(f"[bold]{op}[/bold]: {spec.summary}")
    running = loop.begin(plan, root=folder)
    console.print(f"replies: {running.model.model}", style="dim", highlight=False)
    outcome = loop.watch(running, console)
    if outcome.warnings:
        console.print(f"note: {outcome.warnings[0]}; the reply is judged afresh", style="dim", highlight=False)
    return _op_result(op, str(production(spec)), running.model.model, running.store, outcome)


def _op_result(op: str, case: str, source: str, store: RunStore, outcome: Outcome) -> OpResult:
    best = report.build(store)["best"] or {}
    return OpResult(
        op=op,
        attempts=outcome.attempts,
        verdict="accepted" if outcome.accepted else outcome.message or outcome.ended,
        source=source,
        case=case,
        latency_us=outcome.latency_us,
        floor_us=outcome.floor_us,
        max_ratio=best.get("max_ratio"),
        kernel=outcome.kernel,
        report=outcome.report,
    )


def _tell(tour: Tour, dtype: str, console: Console) -> None:
    table = Table(title="Quickstart: times are modelled for trn2, LNC 1, at each op's production case")
    for name in ("op", "attempts", "verdict", "latency µs", "floor µs", "max error / allowed"):
        table.add_column(name, justify="right" if "µs" in name else "left", no_wrap=name == "op")
    for op in tour.ops:
        table.add_row(
            op.op, str(op.attempts), op.verdict, _number(op.latency_us), _number(op.floor_us),
            "" if op.max_ratio is None else f"{op.max_ratio:.2g}",
        )  # fmt: skip
    console.print(table)
    for op in tour.ops:
        console.print(f"{op.op} at {op.case}", highlight=False)
    verdict = "equal" if tour.passed else "NOT EQUAL"
    console.print(
        f"video: {tour.frames} frames, simulated kernels against PyTorch ({dtype}): relative L2 "
        f"{tour.relative_l2:.2e}, allowed {tour.limit:.0e}: {verdict}",
        highlight=False,
    )
    written = [("video", tour.video)]
    written += [pair for op in tour.ops for pair in ((op.op, op.kernel), ("  its report", op.report))]
    for what, path in (*written, ("all of it", tour.folder)):
        console.print(f"{what:18} {path}", highlight=False, soft_wrap=True)
    console.print(f"{tour.seconds:.0f} s. Next: nkismith draft rope_3d --provider handoff --step", highlight=False)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
