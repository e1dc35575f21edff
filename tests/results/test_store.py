"""What is committed survives, what is asked for by name is found, and spend adds up."""

import threading

import pytest

from nkismith.results.store import Index, RunStore, StoreError, UnknownRun, content_hash, data_root, write_text


@pytest.fixture
def store(tmp_path):
    return RunStore.create(tmp_path, "op-20261129-1", "op", {"target": "trn2", "caps": {"usd": 1.0}})


def call(**fields):
    return lambda spent: {
        "request": "sha256:r", "sample": 0, "attempt": 1, "try": 0, "provider": "p", "model": "m", "reserved_usd": 0.5,
        "reserved_input_tokens": 100, "reserved_output_tokens": 900, **fields,
    }  # fmt: skip


def test_texts_are_kept_once_under_a_hash_that_names_its_algorithm(store):
    # SHA-256 of the three bytes "abc": FIPS 180-4, example B.1
    want = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert store.put("abc") == store.put("abc") == content_hash("abc") == want
    assert store.text(want) == "abc"


def test_calls_in_flight_count_at_their_reserved_maximum(store):
    row = store.reserve(call())
    assert (store.spent().committed_usd, store.spent().committed_tokens, store.spent().in_flight) == (0.5, 1000, 1)
    store.settle(row["id"], state="replied", usd=0.1, input_tokens=10, output_tokens=20, reply="sha256:t")
    spent = store.spent()
    assert (spent.usd, spent.reserved_usd, spent.tokens, spent.replies) == (pytest.approx(0.1), 0, 30, 1)
    assert store.replied("sha256:r")["reply"] == "sha256:t" and store.replied("sha256:other") is None


def test_lost_calls_are_charged_once(store):
    store.reserve(call())
    assert (store.charge_lost_calls(), store.charge_lost_calls()) == (1, 0)
    assert store.spent().usd == 0.5 and store.spent().tokens == 1000


def test_a_reservation_that_is_refused_leaves_nothing(store):
    def refuse(spent):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.reserve(refuse)
    assert store.calls() == [] and store.spent().in_flight == 0


def test_parallel_reservations_see_each_other(store):
    seen = []

    def build(spent):
        seen.append(spent.committed_usd)
        return call()(spent)

    threads = [threading.Thread(target=lambda: store.reserve(build)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [0.5 * number for number in range(8)]


def test_runs_are_found_by_any_beginning_of_their_name(tmp_path, store):
    RunStore.create(tmp_path, "op-20261129-2", "op", {})
    assert RunStore.open(tmp_path, "op-20261129-1").run["op"] == "op"
    for name in ("op", "other"):
        with pytest.raises(UnknownRun, match="op-20261129-2"):
            RunStore.open(tmp_path, name)


def test_wall_time_adds_up_over_sessions(store):
    for _ in range(2):
        with store.session():
            pass
    assert 0 <= store.elapsed_s < 1
    store._db.table("sessions").insert({"started_at": 100.0, "seen_at": 160.0})
    assert 60 <= store.elapsed_s < 61


def test_the_index_keeps_the_latest_run_first(tmp_path):
    index = Index(tmp_path)
    index.note("a", op="x", status="ended", created_at=1.0)
    index.note("b", op="x", status="waiting", created_at=2.0)
    index.note("a", usd=0.5)
    assert [row["id"] for row in index.runs(op="x")] == ["b", "a"]
    assert index.runs(status="ended")[0]["usd"] == 0.5


def test_an_unusable_folder_names_the_variable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="NKISMITH_DATA"):
        Index(tmp_path / "file")


def test_the_data_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("NKISMITH_DATA", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.delenv("NKISMITH_DATA")
    assert data_root().name == "data"  # of the checkout, ignored by git


def test_files_appear_whole_or_not_at_all(tmp_path):
    target = tmp_path / "folder" / "file.txt"
    assert write_text(target, "new").read_text() == "new"
    with pytest.raises(UnicodeEncodeError):
        write_text(target, "\ud800")
    assert target.read_text() == "new" and list(target.parent.iterdir()) == [target]
