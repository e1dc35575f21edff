"""The profile of a trace: modelled latency with its interval, floor, engines, traffic, and where the time goes.

Names follow the summary of Neuron Explorer (overview-summary-page, profile-schema-reference) where it has one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from nkismith.verify.simulator.capacity.allocation import Allocation, allocate
from nkismith.verify.simulator.hardware import Target, target
from nkismith.verify.simulator.trace import Trace
from nkismith.verify.timing.critical import path
from nkismith.verify.timing.diagnosis import diagnose
from nkismith.verify.timing.floor import Floor, floor, narrowest
from nkismith.verify.timing.interval import by_estimate, interval
from nkismith.verify.timing.schedule import schedule
from nkismith.verify.timing.steps import Cause, CoreSchedule
from nkismith.verify.timing.work import ENGINES, LANES, QUEUES


@dataclass(frozen=True, slots=True)
class EngineUse:
    """One compute engine, the mean over the cores of a launch. Waiting is not active."""

    busy_us: float
    busy_percent: float  # 0 .. 100, of the latency
    instruction_count: int


@dataclass(frozen=True, slots=True)
class DmaUse:
    """All DMA queues, summed over cores; times are the mean over cores."""

    transfer_count: int
    transfer_total_bytes: int
    transfer_average_bytes: float
    mean_contiguous_bytes: float  # of a descriptor
    active_time_us: float
    active_time_percent: float
    queue_counts: dict[str, int]  # transfers by queue


@dataclass(frozen=True, slots=True)
class LineUse:
    """A source line's share of the critical path."""

    file: str
    line: int
    opcode: str  # of its instruction that takes longest
    busy_us: float
    percent: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What the model says of one kernel at one set of shapes. Every number is modelled, none is measured."""

    label: str
    entry: str
    target: str
    lnc: int
    sdk: str
    latency_us: float
    low_us: float
    high_us: float
    floor_us: float | None  # None without a spec's work
    bound: str | None  # hbm, tensor, functions, elementwise: what sets the floor
    percent_of_floor: float | None  # 100 is as fast as physics allows
    engines: dict[str, EngineUse]
    dma: DmaUse
    matmul_utilisation: float  # 0 .. 1: matmul FLOP without transposes over TensorE's bf16 peak
    throttled_percent: float  # of TensorE's active time at the reduced rate
    hbm_read_bytes: int
    hbm_write_bytes: int
    sbuf_peak_bytes: int  # a partition
    psum_peak_bytes: int  # a partition
    spill_save_bytes: int
    spill_reload_bytes: int
    spill_bytes: int
    instruction_count: int
    by_line: tuple[LineUse, ...]  # critical path, longest first
    rests_on: dict[str, float]  # percent of the latency by estimate of `hardware.py`, largest first
    diagnosis: tuple[str, ...]  # plain words

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Model:
    """A profile with what it was made of, for pictures."""

    profile: Profile
    trace: Trace
    machine: Target
    cores: tuple[CoreSchedule, ...]
    allocation: Allocation
    floor: Floor | None


def profile_trace(
    trace: Trace,
    *,
    control: dict[str, list[int]] | None = None,
    work: dict[str, float] | None = None,
    capacity: str = "refuse",
) -> Profile:
    """Model a legal trace.

    control: values of integer inputs by buffer name, for trip counts. work: the spec's `work` at this case, for the
    floor. capacity: `refuse` or `spill` what does not fit SBUF. Raises LegalityError `unbound_scalar`,
    `sbuf_overflow` or `psum_overflow`.
    """
    return model(trace, control=control, work=work, capacity=capacity).profile


def model(
    trace: Trace,
    *,
    control: dict[str, list[int]] | None = None,
    work: dict[str, float] | None = None,
    capacity: str = "refuse",
) -> Model:
    """`profile_trace` that keeps the schedule."""
    machine = target(trace.target)
    allocation = allocate(trace, capacity=capacity)
    cores = schedule(trace, allocation, control=control)
    inputs = [trace.buffers[i].dtype for i in trace.inputs]
    limit = None if work is None else floor(work, machine, trace.lnc, narrowest(inputs))
    slowest = max(cores, key=lambda c: c.latency_ns)
    critical = path(slowest)
    latency = slowest.latency_ns / 1e3
    low, high = (ns / 1e3 for ns in interval(critical))
    if limit is not None:
        low = max(low, min(limit.us, latency))
    totals = [c.totals for c in cores]

    def total(name: str) -> int:
        return round(sum(getattr(t, name) for t in totals))

    active = sum(t.busy[0] for t in totals)
    profile = Profile(
        label="modelled",
        entry=trace.entry,
        target=machine.name,
        lnc=trace.lnc,
        sdk=trace.sdk,
        latency_us=latency,
        low_us=low,
        high_us=high,
        floor_us=limit.us if limit else None,
        bound=limit.bound if limit else None,
        percent_of_floor=100 * limit.us / latency if limit and latency else None,
        engines={name: _engine(cores, lane, latency) for lane, name in enumerate(ENGINES)},
        dma=_dma(cores, latency),
        matmul_utilisation=total("flops") / (latency * machine.tensor_tflops_bf16 * 1e6 * trace.lnc)
        if latency
        else 0.0,
        throttled_percent=100 * sum(t.throttled for t in totals) / active if active else 0.0,
        hbm_read_bytes=total("hbm_read"),
        hbm_write_bytes=total("hbm_write"),
        sbuf_peak_bytes=allocation.sbuf_peak_bytes,
        psum_peak_bytes=allocation.psum_peak_bytes,
        spill_save_bytes=total("spill_save"),
        spill_reload_bytes=total("spill_reload"),
        spill_bytes=total("spill_save") + total("spill_reload"),
        instruction_count=total("instructions"),
        by_line=_by_line(trace, slowest, critical),
        rests_on=_rests_on(critical),
        diagnosis=(),
    )
    made = Model(profile, trace, machine, cores, allocation, limit)
    return replace(made, profile=replace(profile, diagnosis=diagnose(made)))


def _engine(cores: tuple[CoreSchedule, ...], lane: int, latency: float) -> EngineUse:
    busy = sum(c.totals.busy[lane] for c in cores) / len(cores) / 1e3
    count = round(sum(c.totals.counts[lane] for c in cores))
    return EngineUse(busy, 100 * busy / latency if latency else 0.0, count)


def _dma(cores: tuple[CoreSchedule, ...], latency: float) -> DmaUse:
    count = round(sum(c.totals.transfers for c in cores))
    moved = round(sum(c.totals.moved for c in cores))
    descriptors = sum(c.totals.descriptors for c in cores)
    active = sum(c.totals.dma_active for c in cores) / len(cores) / 1e3
    queues = {q: round(sum(c.totals.counts[LANES.index(q)] for c in cores)) for q in QUEUES}
    queues["software"] = count - sum(queues.values())
    return DmaUse(
        transfer_count=count,
        transfer_total_bytes=moved,
        transfer_average_bytes=moved / count if count else 0.0,
        mean_contiguous_bytes=moved / descriptors if descriptors else 0.0,
        active_time_us=active,
        active_time_percent=100 * active / latency if latency else 0.0,
        queue_counts={q: n for q, n in queues.items() if n},
    )


def _by_line(trace: Trace, core: CoreSchedule, critical: dict[Cause, float]) -> tuple[LineUse, ...]:
    times: dict[tuple[int, int], float] = {}
    for (file, line, _), ns in critical.items():
        times[file, line] = times.get((file, line), 0.0) + ns
    longest: dict[tuple[int, int], tuple[float, str]] = {}
    for (file, line, _, opcode), ns in core.totals.lines.items():
        longest[file, line] = max(longest.get((file, line), (0.0, "")), (ns, opcode))
    whole = core.latency_ns or 1.0
    return tuple(
        LineUse(trace.files[file], line, longest.get((file, line), (0.0, ""))[1], ns / 1e3, 100 * ns / whole)
        for (file, line), ns in sorted(times.items(), key=lambda item: -item[1])
    )


def _rests_on(critical: dict[Cause, float]) -> dict[str, float]:
    whole = sum(critical.values()) or 1.0
    shares = sorted(by_estimate(critical).items(), key=lambda item: -item[1])
    return {name: 100 * ns / whole for name, ns in shares if ns > 0.005 * whole}
