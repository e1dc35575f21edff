"""What a child gets, what comes back, and every way it can end."""

import tempfile
import time
from pathlib import Path

import pytest

from nkismith.verify.sandbox import ChildResult, Exit, Limits, SandboxError, run

ENTRIES = Path(__file__).parent / "entries"
ENTRY = "worker_under_test"


def child(code: str, **options) -> ChildResult:
    return run(code.encode(), entry=ENTRY, modules={ENTRY: ENTRIES / f"{ENTRY}.py"}, **options)


def reply(code: str, **options) -> str:
    result = child(code, **options)
    assert result.exit is Exit.REPLIED, result
    return result.reply.decode()


def test_the_reply_is_what_main_returned():
    assert reply("out = 6 * 7") == "42"


def test_binary_requests_and_replies_pass_unchanged(tmp_path):
    (tmp_path / "echo.py").write_text("def main(request):\n    return request[::-1]\n")
    request = bytes(range(256)) * 4000
    result = run(request, entry="echo", modules={"echo": tmp_path / "echo.py"})
    assert result.reply == request[::-1]


def test_a_child_starts_in_well_under_a_second():
    started = time.monotonic()
    reply("out = 1", preload=("numpy", "ml_dtypes", "msgpack"))
    assert time.monotonic() - started < 2.0  # 0.12 s on an idle machine


def test_equal_hash_seeds_give_equal_hashes_and_others_do_not():
    hashes = [reply("out = hash('nki')", hash_seed=seed) for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_working_directory_is_the_one_asked_for(tmp_path):
    assert reply("out = os.getcwd()", cwd=tmp_path, level="weak") == str(tmp_path)


def test_the_same_module_can_be_shown_under_another_path(tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text((ENTRIES / f"{ENTRY}.py").read_text() + "\nNAMES['here'] = __file__\n")
    result = run(b"out = here", entry=ENTRY, modules={ENTRY: elsewhere})
    assert result.reply == str(elsewhere).encode()


def test_the_environment_holds_nothing_of_ours(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    names = set(eval(reply("out = sorted(os.environ)")))
    assert names == {"LC_ALL", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"}


def test_no_descriptor_but_null_and_the_reply_pipe_is_open():
    inherited = Path(__file__).open()  # noqa: SIM115
    code = """
out = []
for fd in range(4, 300):
    try:
        os.read(fd, 1)
        out.append(fd)
    except OSError as error:
        if error.errno != errno.EBADF:
            out.append(fd)
out = (out, os.read(0, 1))
"""
    assert reply(code) == "([], b'')"
    inherited.close()


@pytest.mark.parametrize("module", ["torch", "pydantic", "pytest", "nkismith.verify.sandbox.run_", "nkismith.kernels"])
def test_packages_that_are_not_listed_do_not_exist_even_before_the_lock(module):
    with pytest.raises(SandboxError, match=f"No module named '{module}'"):
        child("out = 1", preload=(module,))


def test_torch_and_the_judge_are_not_loaded():
    code = (
        "out = [m for m in sys.modules if m.split('.')[0] in ('torch', 'pydantic') or m == 'nkismith.verify.verdict']"
    )
    assert reply(code, preload=("numpy", "ml_dtypes", "msgpack")) == "[]"


def test_an_entry_that_does_not_import_is_our_failure_and_says_why():
    with pytest.raises(SandboxError, match="No module named 'no_such_entry'"):
        run(b"", entry="no_such_entry")


def test_a_startup_that_takes_too_long_is_our_failure(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(SandboxError, match=r"nothing for 0\.5 s"):
        run(b"", entry="slow", modules={"slow": tmp_path / "slow.py"}, limits=Limits(startup_seconds=0.5))


@pytest.mark.parametrize("field", ["wall_seconds", "cpu_seconds", "memory_bytes", "output_bytes", "startup_seconds"])
def test_limits_that_limit_nothing_are_refused(field):
    with pytest.raises(ValueError, match=field):
        Limits(**{field: 0})


ENDINGS = {
    "an exception": ("raise ValueError('bad tile')", Exit.CRASHED, "ValueError: bad tile"),
    "sys.exit": ("sys.exit(0)", Exit.CRASHED, "SystemExit: 0"),
    "os._exit without a reply": ("os._exit(0)", Exit.CRASHED, "status 0 and without a reply"),
    "success on stdout, then exit": ("print('ok', flush=True); os._exit(0)", Exit.CRASHED, "without a reply"),
    "abort": ("os.abort()", Exit.CRASHED, "SIGABRT"),
    "a null pointer": ("ctypes.string_at(0)", Exit.CRASHED, "SIGSEGV"),
    "endless recursion in C": (
        "x = ()\nfor _ in range(10**6): x = (x,)\nsys.setrecursionlimit(10**9)\nrepr(x)",
        Exit.CRASHED,
        "",
    ),
    "MemoryError": ("raise MemoryError", Exit.MEMORY, "address space"),
    "half a frame": ("os.write(3, b'R' + bytes(7) + b'\\x09four'); os._exit(0)", Exit.GARBLED, "one whole frame"),
    "a forged frame before the real one": ("os.write(3, b'R' + bytes(7) + b'\\x04four')", Exit.GARBLED, "whole frame"),
    "a frame of unknown kind": (
        "os.write(3, b'P' + bytes(7) + b'\\x04four'); os._exit(0)",
        Exit.GARBLED,
        "whole frame",
    ),
    "a frame, then a crash": ("os.write(3, b'R' + bytes(7) + b'\\x04four'); os._exit(1)", Exit.GARBLED, "whole frame"),
    "a length beyond any memory": ("os.write(3, b'R' + b'\\xff' * 8); os._exit(0)", Exit.GARBLED, "whole frame"),
    "a reply that is not bytes": ("class T:\n def __str__(s): return 5\nout = T()", Exit.CRASHED, "TypeError"),
}


@pytest.mark.parametrize(("code", "exit_", "detail"), ENDINGS.values(), ids=ENDINGS)
def test_each_way_to_end_without_a_reply_has_its_name(code, exit_, detail):
    result = child(code)
    assert (result.exit, result.reply) == (exit_, None)
    assert detail in result.detail


def test_an_endless_loop_is_stopped():
    result = child("while True: pass", limits=Limits(wall_seconds=0.5))
    assert (result.exit, result.reply) == (Exit.TIMEOUT, None)
    assert result.seconds < 5


def test_an_endless_loop_inside_a_builtin_is_stopped():
    assert child("sum(iter(int, 1))", limits=Limits(wall_seconds=0.5)).exit is Exit.TIMEOUT


def test_waiting_forever_is_stopped():
    code = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
    assert child(code, limits=Limits(wall_seconds=0.5)).exit is Exit.TIMEOUT


def test_ignoring_every_signal_does_not_help_against_the_wall_clock():
    code = "for s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\nwhile True: pass"
    assert child(code, limits=Limits(wall_seconds=0.5)).exit is Exit.TIMEOUT


def test_cpu_time_is_limited_also_where_the_wall_clock_is_generous():
    result = child("while True: pass", limits=Limits(cpu_seconds=1, wall_seconds=60))
    assert result.exit is Exit.TIMEOUT
    assert "CPU" in result.detail


@pytest.mark.acceptance
def test_ignoring_the_cpu_warning_only_buys_one_second():
    code = "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    result = child(code, limits=Limits(cpu_seconds=1, wall_seconds=60))
    assert (result.exit, result.reply) == (Exit.TIMEOUT, None)


def test_a_memory_bomb_is_stopped():
    result = child("x = [bytearray(1 << 20) for _ in range(10**6)]", limits=Limits(memory_bytes=512 << 20))
    assert (result.exit, result.reply) == (Exit.MEMORY, None)


def test_a_reply_at_the_cap_passes_and_one_byte_more_does_not():
    limits = Limits(output_bytes=1000)
    assert len(reply("out = 'x' * 1000", limits=limits)) == 1000
    assert child("out = 'x' * 1001", limits=limits).exit is Exit.OUTPUT_LIMIT


def test_a_flood_on_the_reply_pipe_is_cut_off():
    result = child("while True: os.write(3, bytes(65536))", limits=Limits(output_bytes=1 << 20))
    assert (result.exit, result.reply) == (Exit.OUTPUT_LIMIT, None)


def test_a_drip_on_the_reply_pipe_runs_into_the_wall_clock():
    result = child("while True: os.write(3, b'R') and [None for _ in range(10**5)]", limits=Limits(wall_seconds=0.5))
    assert (result.exit, result.reply) == (Exit.TIMEOUT, None)


def test_the_detail_cannot_drive_a_terminal():
    result = child(r"raise ValueError('\x1b[2J\r\n\u202e' + 'x' * 10**6)")
    assert result.detail.isprintable()
    assert len(result.detail) <= 500


def test_a_machine_that_is_too_busy_is_no_fault_of_the_child():
    waits = "import _thread; lock = _thread.allocate_lock(); lock.acquire(); lock.acquire()"  # uses no CPU time
    with pytest.raises(SandboxError, match="too busy"):
        child(waits, limits=Limits(cpu_seconds=1, wall_seconds=2))


def test_no_room_for_a_child_is_no_fault_of_the_child(monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(SandboxError, match="No space left"):
        child("out = 1")
