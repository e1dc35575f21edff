"""A profile in plain words: at most ten lines that say what binds the kernel and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.hardware import PSUM_BANK_BYTES, PSUM_BANKS
from nkismith.verify.simulator.trace import Instr, walk
from nkismith.verify.timing.interval import ESTIMATES
from nkismith.verify.timing.steps import CoreSchedule
from nkismith.verify.timing.work import ENGINES, LANES, Workbook

if TYPE_CHECKING:
    from nkismith.verify.timing.profile import Model

MOST = 10  # lines
_NAMES = {"tensor": "TensorE", "vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE", "sync": "SyncE"}
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_SLOW_RUN = 2048  # bytes of a contiguous run below which a DMA loses bandwidth (DMAB)
_WORTH = 15.0  # percent of the latency from which a cause is named


def diagnose(model: Model) -> tuple[str, ...]:
    """What the profile shows, most important first."""
    core = max(model.cores, key=lambda c: c.latency_ns)
    if not core.latency_ns:
        return ("The kernel has no instruction that takes time.",)
    lines = [
        _headline(model),
        *_cores(model),
        *_path(model),
        *_engines(model, core),
        *_dma(model),
        *_waits(model, core),
    ]
    lines += [*_tensor(model), *_memory(model), _certainty(model)]
    return tuple(lines[:MOST])


def _headline(model: Model) -> str:
    p = model.profile
    text = f"{p.entry} on {p.target}, LNC {p.lnc}, SDK {p.sdk}, modelled: {_us(p.latency_us)} "
    text += f"({_us(p.low_us)} to {_us(p.high_us)})"
    if p.floor_us:
        text += f"; the floor of {_us(p.floor_us)} is set by {p.bound}, {p.percent_of_floor:.0f} % of it reached"
    return text + "."


def _cores(model: Model) -> Iterator[str]:
    """Two cores that touch the same regions of shared memory do the same work: a kernel written for one core."""
    touched = [
        [o for i in walk(program.body) for o in i.operands.values() if model.trace.buffers[o.buffer].shared]
        for program in model.trace.programs
    ]
    if len(touched) == 2 and touched[0] and touched[0] == touched[1]:
        yield "Both cores do the same work: give each its share of it, chosen by nl.program_id(0)."


def _path(model: Model) -> Iterator[str]:
    top = [u for u in model.profile.by_line if u.percent >= 3][:4]
    if top:
        parts = ", ".join(f"line {u.line} ({u.opcode or 'waiting'}) {u.percent:.0f} %" for u in top)
        yield f"The time goes along this path: {parts}."


def _engines(model: Model, core: CoreSchedule) -> Iterator[str]:
    """The busiest engines, with the instruction that fills them."""
    used = sorted(model.profile.engines.items(), key=lambda item: -item[1].busy_us)
    for name, use in used[:2]:
        if use.busy_percent < _WORTH:
            continue
        lane = ENGINES.index(name)
        mine = {k: ns for k, ns in core.totals.lines.items() if k[2] == lane}
        (file, line, _, opcode), ns = max(mine.items(), key=lambda item: item[1])
        text = f"{_NAMES[name]} {use.busy_percent:.0f} % busy; {100 * ns / sum(mine.values()):.0f} % of it is the "
        step = next(i for i, s in enumerate(core.steps.instrs) if (s.file, s.line, s.op) == (file, line, opcode))
        yield text + _described(core.steps.instrs[step]) + f" at line {line}" + _faster(model, core, step) + "."


def _described(instr: Instr) -> str:
    shown = instr.operands.get("moving") or max(instr.operands.values(), key=lambda o: o.size)
    operator = instr.attrs.get("op") or instr.attrs.get("op0")
    parts = [_SHORT.get(shown.dtype, shown.dtype), instr.op, str(operator) if operator else ""]
    return " ".join(p for p in parts if p)


def _faster(model: Model, core: CoreSchedule, step: int) -> str:
    """What the same instruction gains with 16-bit tiles in SBUF."""
    instr, work = core.steps.instrs[step], core.steps.works[step]
    narrow = {
        name: o._replace(dtype="bfloat16")
        if o.dtype == "float32" and o.free > 1 and model.trace.buffers[o.buffer].space == "sbuf"
        else o
        for name, o in instr.operands.items()
    }
    if narrow == instr.operands:
        return ""
    other = Workbook(model.trace, model.machine).of(Instr(0, instr.op, narrow, instr.attrs, instr.line))
    gain = work.ns / other.ns if other.ns else 1.0
    return f"; in bf16 it runs at {_times(gain)} the rate" if gain >= 1.25 else ""


def _dma(model: Model) -> Iterator[str]:
    dma, machine = model.profile.dma, model.machine
    if dma.active_time_percent < _WORTH or not dma.transfer_count:
        return
    text = (
        f"DMA {dma.active_time_percent:.0f} % active: {dma.transfer_count:,} transfers of "
        f"{_bytes(dma.transfer_average_bytes)} in runs of {_bytes(dma.mean_contiguous_bytes)}"
    )
    if dma.mean_contiguous_bytes < _SLOW_RUN:
        now, then = (_rate(model, b) for b in (dma.mean_contiguous_bytes, 2 * _SLOW_RUN))
        text += f", which all {machine.dma_engines} engines move at {now:.0f} GB/s; runs of 4 KiB go at {then:.0f}"
    yield text + "."


def _rate(model: Model, run: float) -> float:
    machine = model.machine
    ns = hardware.DMA_DESCRIPTOR_NS.value + run / machine.dma_engine_gb_s
    return run / ns * machine.dma_engines


def _waits(model: Model, core: CoreSchedule) -> Iterator[str]:
    """What the critical path waits for, where better code would not."""
    rests = model.profile.rests_on
    issue = rests.get("dma_issue_ns", 0.0) + rests.get("dma_hwdge_ns", 0.0) + rests.get("dma_swdge_ns", 0.0)
    if issue >= _WORTH:
        yield (
            f"{issue:.0f} % of the path is the start of one DMA after another, about "
            f"{hardware.DMA_ISSUE_NS.value / 1e3:.1f} us each whatever their size: move more with each DMA."
        )
    latency = rests.get("dma_start_ns", 0.0) + rests.get("dma_done_ns", 0.0)
    if latency >= _WORTH:
        yield (
            f"{latency:.0f} % of the path is DMA latency: load the next tile while this one is used "
            "(a new tile in each iteration), or move more at once."
        )
    signals = sum(rests.get(f"{name}_latency_ns", 0.0) for name in ENGINES) + rests.get("semaphore_ns", 0.0)
    if signals + rests.get("issue_cycles", 0.0) >= _WORTH:
        yield (
            f"{signals + rests.get('issue_cycles', 0.0):.0f} % of the path is the fixed time of short or dependent "
            "instructions: use wider tiles, or give the engines independent work to interleave."
        )
    (tile, reused), room = _reuse(model, core)
    if tile >= 0 and reused >= _WORTH:
        buffer = model.trace.buffers[tile]
        cure = "make the tile inside the loop, so that two of them alternate"
        if buffer.scope:  # the body of a compiled loop is emitted once
            cure = "a compiled loop has one of it, so let its body handle two steps with a tile each"
        yield (
            f"{reused:.0f} % of the path refills tile {buffer.name} (line {buffer.line}) after its last reader: {cure}."
        )
    if room >= _WORTH:
        yield f"{room:.0f} % of the path waits for room on chip: smaller tiles would let more of them be in flight."


def _reuse(model: Model, core: CoreSchedule) -> tuple[tuple[int, float], float]:
    """((tile that is refilled most, percent of the path), percent of the path behind a wait for room)."""
    steps, refills, room = core.steps, dict[int, float](), 0.0
    step, end = core.last, core.end
    while step >= 0:
        cause, since = steps.cause[step], steps.since[step]
        queued = steps.works[step].transfer is not None and since == steps.data[step]  # behind another DMA
        if cause >= 0 and not queued and steps.works[cause].lane != steps.works[step].lane:
            mine = {steps.instrs[step].operands[n].buffer for n in steps.works[step].writes}
            needs = {steps.instrs[step].operands[n].buffer for n in steps.works[step].reads}
            made = {steps.instrs[cause].operands[n].buffer for n in steps.works[cause].writes}
            used = {steps.instrs[cause].operands[n].buffer for n in steps.works[cause].reads}
            if not needs & made:
                for tile in mine & used:
                    refills[tile] = refills.get(tile, 0.0) + end - since
                if not mine & (used | made):
                    room += end - since
        step, end = cause, since
    share = 100 / core.end if core.end else 0.0
    tile = max(refills, key=lambda b: refills[b], default=-1)
    return (tile, refills.get(tile, 0.0) * share), room * share


def _tensor(model: Model) -> Iterator[str]:
    p = model.profile
    if p.engines["tensor"].busy_percent >= _WORTH and p.throttled_percent >= 20:
        yield (
            f"TensorE ran {p.throttled_percent:.0f} % of its time at half rate, because it was idle half of the time "
            "or more in the 3 us before: keep matmuls together."
        )


def _memory(model: Model) -> Iterator[str]:
    p = model.profile
    text = (
        f"SBUF peak {p.sbuf_peak_bytes / 1024:.0f} of {model.machine.sbuf_usable_bytes / 1024:.0f} KiB a partition, "
        f"PSUM {p.psum_peak_bytes / PSUM_BANK_BYTES:.3g} of {PSUM_BANKS} banks"
    )
    if p.spill_bytes:
        text += f"; {_bytes(p.spill_bytes)} are spilled to HBM and back"
    yield text + "."


def _certainty(model: Model) -> str:
    known = [(n, share) for n, share in model.profile.rests_on.items() if share >= 10][:2]
    if not known:
        return "The latency rests on documented rates; the interval is the freedom of the compiler's schedule."
    parts = " and ".join(
        f"{share:.0f} % on {name} ({ESTIMATES[name].low:g} to {ESTIMATES[name].high:g})" for name, share in known
    )
    return f"No source states all constants: of the latency rests {parts}."


def _us(us: float) -> str:
    return f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.1f} us"


def _bytes(count: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _times(factor: float) -> str:
    return "twice" if abs(factor - 2) < 0.1 else f"{factor:.2g} times"


assert set(_NAMES) == set(ENGINES) <= set(LANES)
