"""docs/timing.md says what the model says: a changed constant must show in the page."""

from pathlib import Path

import pytest

import nkismith.verify
from nkismith.verify.simulator.hardware import Estimate
from nkismith.verify.timing.interval import ESTIMATES
from nkismith.verify.timing.profile import Profile
from tests.verify.timing.ladders.measured import POINTS, Point

PAGE = Path(nkismith.verify.__file__).parents[1] / "docs" / "timing.md"


def time(us: float) -> str:
    return f"{us / 1e3:.2f} ms" if us >= 1000 else f"{us:.0f} µs"


def point_row(point: Point, found: Profile) -> str:
    inside = "yes" if found.low_us <= point.us <= found.high_us else "**no**"
    interval = f"{time(found.low_us)} to {time(found.high_us)}"
    return f"| {point.name} | {time(point.us)} | {time(found.latency_us)} | {interval} | {inside} |"


def estimate_row(estimate: Estimate) -> str:
    e = estimate
    return f"| `{e.name}` | {e.value:g} | {e.low:g} to {e.high:g} | {e.reason} | {e.source} |"


@pytest.mark.parametrize("point", [p for p in POINTS if p.us < 1000], ids=lambda p: p.name)
def test_the_page_gives_the_modelled_time_of_a_point(point):
    assert point_row(point, point.profile()) in PAGE.read_text(encoding="utf-8")


def test_the_page_lists_every_point_and_every_estimate():
    text = PAGE.read_text(encoding="utf-8")
    assert not [p.name for p in POINTS if f"| {p.name} | {time(p.us)} |" not in text]
    assert not [row for row in map(estimate_row, ESTIMATES.values()) if row not in text]
