"""The schedule as a picture: trace events for Perfetto, or a PNG with the roofline below it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nkismith.verify.timing.floor import rates
from nkismith.verify.timing.profile import Model
from nkismith.verify.timing.steps import CoreSchedule
from nkismith.verify.timing.work import ENGINES, LANES

TITLES = {
    "tensor": "TensorE", "vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE", "sync": "SyncE",
    "load": "DMA loads", "store": "DMA stores", "hw_sync": "DMA hwdge (SyncE)", "hw_scalar": "DMA hwdge (ScalarE)",
    "spill": "DMA spills", "software": "DMA swdge (GpSimdE)",
}  # fmt: skip
ROWS = (*LANES, "software")
_COLOURS = 9  # source lines with a colour of their own
_PIXELS = 4000  # bars of a row closer than the width over this are drawn as one


def write(model: Model, path: Path) -> None:
    """Write a picture: `.json` opens in Perfetto or chrome://tracing, `.png` is drawn. Raises ValueError otherwise."""
    if path.suffix == ".json":
        path.write_text(json.dumps({"traceEvents": list(events(model)), "displayTimeUnit": "ns"}), encoding="utf-8")
    elif path.suffix == ".png":
        _draw(model, path)
    else:
        raise ValueError(f"{path}: a timeline is written as .json (Perfetto) or .png")


def spans(core: CoreSchedule) -> Iterator[tuple[str, int, float, float]]:
    """(row, step, start ns, end ns) of everything that a picture shows: engines while busy, DMAs while they move."""
    steps = core.steps
    for step, work in enumerate(steps.works):
        row = LANES[work.lane]
        if work.transfer is not None:
            yield "software" if row in ENGINES else row, step, steps.data[step], steps.data_end[step]
            if row not in ENGINES:
                continue
        yield row, step, steps.start[step], steps.busy_end[step]


def events(model: Model) -> Iterator[dict[str, Any]]:
    """Trace events: a process a core, a track an engine and DMA queue; overlapping DMAs of a queue take more tracks."""
    for core in model.cores:
        yield {"ph": "M", "name": "process_name", "pid": core.core, "args": {"name": f"core {core.core} (modelled)"}}
        ends: dict[str, list[float]] = {}  # row -> end of each of its tracks
        for row, step, start, end in sorted(spans(core), key=lambda s: s[2]):
            tracks = ends.setdefault(row, [])
            track = next((i for i, until in enumerate(tracks) if until <= start), len(tracks))
            if track == len(tracks):
                tracks.append(end)
                title = TITLES[row] + (f" {track + 1}" if track else "")
                tid = _track(row, track)
                yield {"ph": "M", "name": "thread_name", "pid": core.core, "tid": tid, "args": {"name": title}}
                yield {
                    "ph": "M",
                    "name": "thread_sort_index",
                    "pid": core.core,
                    "tid": tid,
                    "args": {"sort_index": tid},
                }
            tracks[track] = end
            instr = core.steps.instrs[step]
            yield {
                "ph": "X",
                "pid": core.core,
                "tid": _track(row, track),
                "name": instr.name or instr.op,
                "cat": row,
                "ts": start / 1e3,
                "dur": (end - start) / 1e3,
                "args": {
                    "line": instr.line,
                    "file": model.trace.files[instr.file],
                    "opcode": instr.op,
                    "operands": {n: f"{o.dtype}{list(o.shape)}" for n, o in instr.operands.items()},
                },
            }
        for skip in core.skipped:
            text = f"{skip.iterations:,} more iterations of the loop at line {skip.line}: {skip.ns / 1e3:,.1f} us"
            yield {"ph": "i", "s": "p", "pid": core.core, "tid": 0, "name": text, "ts": skip.after / 1e3}


def _track(row: str, track: int) -> int:
    return ROWS.index(row) * 1000 + track


def _draw(model: Model, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = _rows(model)
    figure, (top, bottom) = pyplot.subplots(
        2, 1, figsize=(14, 4.8 + 0.42 * len(rows)), height_ratios=[0.42 * len(rows) + 0.6, 3.6], layout="constrained"
    )
    _draw_timeline(top, model, rows)
    _draw_roofline(bottom, model)
    p = model.profile
    figure.suptitle(
        f"{p.entry} on {p.target}, LNC {p.lnc}, SDK {p.sdk}: modelled {p.latency_us:,.1f} us "
        f"({p.low_us:,.1f} to {p.high_us:,.1f})"
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _rows(model: Model) -> list[tuple[int, str]]:
    """(core, row) of what is used, in the order of the picture."""
    used = {(core.core, row) for core in model.cores for row, *_ in spans(core)}
    return [(c.core, row) for c in model.cores for row in ROWS if (c.core, row) in used]


def _draw_timeline(axes: Any, model: Model, rows: list[tuple[int, str]]) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    ranked = _ranked(model)
    palette = colormaps["tab10"]
    colours = {place: palette(i + (i >= 7)) for i, place in enumerate(ranked)}  # its eighth colour is a grey
    grey = (0.6, 0.6, 0.6)
    end = max((core.end for core in model.cores), default=0.0) or 1.0
    for core in model.cores:
        bars: dict[tuple[str, tuple], list[list[float]]] = {}
        for row, step, start, stop in spans(core):
            instr = core.steps.instrs[step]
            colour = colours.get((model.trace.files[instr.file], instr.line), grey)
            mine = bars.setdefault((row, colour), [])
            if mine and 0 <= start - mine[-1][1] < end / _PIXELS:
                mine[-1][1] = stop
            else:
                mine.append([start, stop])
        for (row, colour), pieces in bars.items():
            y = len(rows) - 1 - rows.index((core.core, row))
            axes.broken_barh([(a / 1e3, (b - a) / 1e3) for a, b in pieces], (y - 0.38, 0.76), color=colour, linewidth=0)
    several = len(model.cores) > 1
    axes.set_yticks(range(len(rows)), [TITLES[r] + (f" (core {c})" if several else "") for c, r in reversed(rows)])
    axes.set_xlim(0, end / 1e3)
    axes.set_xlabel("us" + _skipped(model))
    several_files = len({file for file, _ in ranked}) > 1
    legend = [
        Patch(color=colours[file, line], label=f"{file}:{line}" if several_files else f"line {line}")
        for file, line in ranked
    ]
    legend.append(Patch(color=grey, label="others"))
    columns = 5 if several_files else len(legend)
    axes.legend(handles=legend, ncols=columns, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def _ranked(model: Model) -> list[tuple[str, int]]:
    """The source lines that get a colour: those of the critical path, then the busiest."""
    busy: dict[tuple[str, int], float] = {}
    for core in model.cores:
        for (file, line, _, _), ns in core.totals.lines.items():
            place = model.trace.files[file], line
            busy[place] = busy.get(place, 0.0) + ns
    first = [(u.file, u.line) for u in model.profile.by_line if u.percent >= 1]
    return list(dict.fromkeys([*first, *sorted(busy, key=lambda place: -busy[place])]))[:_COLOURS]


def _skipped(model: Model) -> str:
    ns = max((sum(s.ns for s in core.skipped) for core in model.cores), default=0.0)
    return f" (simulated part; {ns / 1e3:,.1f} us of further loop iterations are not drawn)" if ns else ""


def _draw_roofline(axes: Any, model: Model) -> None:
    """Matmul rate over the FLOP of each HBM byte, under what bandwidth and TensorE allow."""
    profile = model.profile
    best = rates(model.machine, profile.lnc)
    peak, bandwidth = best["tensor"] / 1e3, best["hbm"] / 1e3  # TFLOP/s, TB/s
    moved = profile.hbm_read_bytes + profile.hbm_write_bytes
    flops = profile.matmul_utilisation * profile.latency_us * 1e6 * model.machine.tensor_tflops_bf16 * profile.lnc
    ridge = peak / bandwidth
    span = [ridge / 300, ridge * 30]
    axes.loglog([span[0], ridge, span[1]], [bandwidth * span[0], peak, peak], color="black")
    axes.annotate(f"HBM {bandwidth * 1e3:.0f} GB/s", (ridge / 40, bandwidth * ridge / 40), va="bottom", ha="right")
    axes.annotate(f"TensorE bf16 {peak:.1f} TFLOP/s", (span[1], peak), va="bottom", ha="right")
    if flops and moved:
        intensity, reached = flops / moved, flops / profile.latency_us / 1e6
        axes.plot([intensity], [reached], "o", color="tab:red")
        text = f"{profile.entry}: {reached:.3g} TFLOP/s at {intensity:.3g} FLOP/byte"
        axes.annotate(text, (intensity, reached), xytext=(8, -14), textcoords="offset points")
        axes.set_ylim(bottom=min(reached / 4, bandwidth * span[0]))
    else:
        rate = moved / (profile.latency_us * 1e3) if profile.latency_us else 0.0
        axes.annotate(
            f"no matmul: HBM at {rate:.0f} GB/s of {bandwidth * 1e3:.0f}", (0.02, 0.9), xycoords="axes fraction"
        )
    axes.set_ylim(top=3 * peak)
    axes.set_xlabel("matmul FLOP per HBM byte")
    axes.set_ylabel("TFLOP/s (modelled)")
    axes.grid(alpha=0.3)
