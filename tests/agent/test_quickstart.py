"""The tour, with scripted recordings, a fake judge and a fake film: what it writes, says and refuses."""

import json

import pytest
from rich.console import Console

from nkismith.agent import quickstart
from nkismith.agent.providers import recording
from tests.agent.fakes import FakeJudge, kernel


@pytest.fixture
def tour(data, tmp_path, monkeypatch):
    folder = tmp_path / "recordings"
    folder.mkdir()
    monkeypatch.setattr(recording, "BUNDLED", folder)
    monkeypatch.setattr("nkismith.agent.loop.Verifier", FakeJudge)

    def go(distance=1e-6, replies=None, out=None):
        for op in quickstart.OPS:
            said = (replies or {}).get(op, [kernel("ok 100")])
            kept = {"op": op, "model": "scripted", "source": "a test", "replies": [
                {"sample": 0, "attempt": number, "prompt": "sha256:0", "reply": text}
                for number, text in enumerate(said, 1)
            ]}  # fmt: skip
            (folder / f"{op}.json").write_text(json.dumps(kept))

        def film(kernels, video):
            video.write_bytes(b"mp4")
            return quickstart.Clips(video, 165, "float32", distance, 1e-4)

        console = Console(record=True, width=160)
        return quickstart.run(out or tmp_path / "tour", film=film, console=console), console.export_text()

    return go


def test_the_tour_ends_with_kernels_a_video_and_a_table(tour, tmp_path):
    result, said = tour(replies={"rolling_attention": [kernel("bad mismatch"), kernel("ok 100", "scaled the scores")]})
    assert result.passed and [op.verdict for op in result.ops] == ["accepted"] * 3
    assert {op.op: op.attempts for op in result.ops}["rolling_attention"] == 2
    assert (
        "the prompt changed since this reply was recorded" in said
    )  # the scripted ones were recorded for none of today's
    assert "report.md" in said
    assert "y is off: mismatch" in said  # the wrong draft is explained on the way
    assert "scripted (recorded: a test)" in said and "modelled" in said and "relative L2 1.00e-06" in said
    assert str(tmp_path / "tour" / "video.mp4") in said


def test_videos_that_differ_fail_the_tour(tour):
    result, said = tour(distance=1e-2)
    assert not result.passed and "NOT EQUAL" in said


def test_a_kernel_that_is_refused_today_stops_the_tour(tour):
    with pytest.raises(quickstart.TourError, match="rope_3d"):
        tour(replies={"rope_3d": [kernel("bad mismatch")]})


def test_a_folder_with_something_in_it_is_left_alone(tour, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    with pytest.raises(quickstart.TourError, match="not empty"):
        tour(out=tmp_path / "mine")
