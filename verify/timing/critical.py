"""The critical path: which source lines, and which uncertain numbers, the latency consists of."""

from __future__ import annotations

from nkismith.verify.simulator import hardware
from nkismith.verify.timing.steps import Cause, CoreSchedule, Steps
from nkismith.verify.timing.work import Work


def causes(steps: Steps, last: int, since: float = 0.0) -> dict[Cause, float]:
    """ns of the critical path that ends with step `last`, back to the time `since`, by line and estimate."""
    found: dict[Cause, float] = {}
    step = last
    until = steps.finish[last] if last >= 0 else since
    while step >= 0 and until > since:
        instr, work = steps.instrs[step], steps.works[step]
        cause, released = steps.cause[step], steps.since[step]
        if work.transfer is not None and until <= steps.busy_end[step]:  # the next one waited for it to issue
            cause, released = steps.trigger[step], steps.triggered[step]
        begin = max(min(released, until), since)
        for name, ns in _parts(steps, step, work, begin, until):
            if ns > 0:
                key = (instr.file, instr.line, name)
                found[key] = found.get(key, 0.0) + ns
        step, until = cause, min(released, until)
    return found


def path(core: CoreSchedule) -> dict[Cause, float]:
    """The same for a whole core, skipped iterations included. The sum is its latency."""
    found = causes(core.steps, core.last)
    for cause, ns in core.totals.extra_causes.items():
        found[cause] = found.get(cause, 0.0) + ns
    return found


def _parts(steps: Steps, step: int, work: Work, begin: float, until: float) -> list[tuple[str, float]]:
    """(estimate, ns) of the time begin .. until of one step."""
    moved = work.transfer
    if moved is None:
        start, end = steps.start[step], steps.busy_end[step]
        latency = work.latency.name if work.latency else ""
        return [
            (hardware.SEMAPHORE_NS.name, start - begin),
            (work.estimate.name if work.estimate else "", min(end, until) - max(start, begin)),
            (latency, until - max(end, begin)),
        ]
    if until <= steps.busy_end[step]:
        return [(moved.issue.name, until - begin)]
    start, data, end = steps.start[step], steps.data[step], steps.data_end[step]
    share = moved.overhead_ns / max(moved.overhead_ns + moved.data_ns, 1e-9)
    moving = max(0.0, min(end, until) - max(data, begin))
    return [
        (moved.issue.name, min(start, until) - begin),
        (hardware.DMA_START_NS.name, min(data, until) - max(start, begin)),
        (hardware.DMA_DESCRIPTOR_NS.name, moving * share),
        (moved.rate.name, moving * (1 - share)),
        (hardware.DMA_DONE_NS.name, until - max(end, begin)),
    ]
