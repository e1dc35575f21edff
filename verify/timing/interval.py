"""How sure a modelled latency is: the spread of the estimates on its critical path."""

from __future__ import annotations

from math import hypot, log

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.hardware import Estimate
from nkismith.verify.timing.steps import Cause

WIDEST = 1.6  # high over low; a wider interval tells nothing and is narrowed about the value

ESTIMATES: dict[str, Estimate] = {e.name: e for e in vars(hardware).values() if isinstance(e, Estimate)}


def interval(path: dict[Cause, float]) -> tuple[float, float]:
    """(low, high) of the latency, in the unit of `path` (time by line and estimate).

    The estimates are independent guesses, so that their spreads add like errors: as the root of the sum of squares.
    """
    total = sum(path.values())
    times = by_estimate(path)
    times[hardware.SCHEDULE.name] = total
    down = [ns * (1 - ESTIMATES[name].low / ESTIMATES[name].value) for name, ns in times.items()]
    up = [ns * (ESTIMATES[name].high / ESTIMATES[name].value - 1) for name, ns in times.items()]
    low, high = total - hypot(*down), total + hypot(*up)
    if total and high > WIDEST * low:
        shrink = log(WIDEST) / log(high / low)
        low, high = total * (low / total) ** shrink, total * (high / total) ** shrink
    return low, high


def by_estimate(path: dict[Cause, float]) -> dict[str, float]:
    """Time of the critical path by the estimate it rests on; documented time is left out."""
    found: dict[str, float] = {}
    for (_, _, name), ns in path.items():
        if name:
            found[name] = found.get(name, 0.0) + ns
    return found
