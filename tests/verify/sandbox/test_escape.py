"""Attacks on the sandbox itself, as code that already runs in the worker. None may reach anything outside.

At STRONG and SECCOMP the system call must be refused; at WEAK only the limits hold, and the result says WEAK.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from nkismith.verify.sandbox import (
    Exit,
    Isolation,
    IsolationUnavailable,
    Level,
    Limits,
    Mechanism,
    landlock,
    levels,
    syscalls,
)
from nkismith.verify.sandbox.isolation import level_of

from .test_run import ENTRIES, ENTRY, child, reply

REACHABLE = [report.level for report in levels() if report.available]
LOCKED = [level for level in REACHABLE if level is not Level.WEAK]
needs_strong = pytest.mark.skipif(Level.STRONG not in REACHABLE, reason="this machine allows no strong isolation")

REFUSED = {
    "read the password file": "os.open('/etc/passwd', os.O_RDONLY)",
    "read the judge's memory map": "open(f'/proc/{os.getppid()}/maps')",
    "read the environment of pid 1": "open('/proc/1/environ')",
    "read its own command line": "open('/proc/self/cmdline')",
    "list the root": "os.listdir('/')",
    "find out whether a file exists": "os.stat('/etc/passwd')",
    "find out whether a file may be read": "os.access('/etc/passwd', 0) or os.stat('/')",
    "append to a file": "open('/usr/lib/python3', 'a')",
    "make a file": "os.open('/var/tmp/nkismith-escape', os.O_CREAT | os.O_WRONLY)",
    "make a symlink": "os.symlink('/etc/passwd', '/var/tmp/nkismith-escape')",
    "make a directory": "os.mkdir('/var/tmp/nkismith-escape')",
    "make an anonymous file": "os.memfd_create('x')",
    "make a pipe": "os.pipe()",
    "duplicate a descriptor": "os.dup(3)",
    "import another module": "os.open(os.__file__, os.O_RDONLY); import sqlite3",
    "load a library": "ctypes.CDLL('libz.so.1')",
    "use TCP": "socket.socket()",
    "use a unix socket": "socket.socket(socket.AF_UNIX)",
    "ask the network for names": "socket.getaddrinfo('example.com', 80)",
    "talk to the kernel by netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "fork": "os.fork() or os._exit(0)",
    "start a thread": "threading.Thread(target=int).start()",
    "start a program": "subprocess.Popen(['/bin/true'])",
    "become a program": "os.execv('/bin/true', ['true'])",
    "signal its guard": "os.kill(os.getppid(), 9)",
    "signal everybody": "os.kill(-1, 9)",
    "leave its session": "os.setsid()",
    "become root": "os.setuid(0)",
    "change directory": "os.chdir('/var/tmp')",
    "change root": "os.chroot('/var/tmp')",
    "raise its limits": "__import__('resource').setrlimit(7, (100, 100))",
    "wait for a descriptor": "__import__('select').poll()" + " and os.eventfd(0)",
    "map code": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
}
LIBC = {
    "trace a process": "libc.ptrace(16, os.getppid(), 0, 0)",
    "be traced": "libc.ptrace(0, 0, 0, 0)",
    "enter new namespaces": "libc.unshare(0x10000000)",
    "mount": "libc.mount(b'none', b'/var/tmp', b'tmpfs', 0, None)",
    "attach shared memory": "libc.shmget(1, 4096, 0o1777)",
    "use prctl": "libc.prctl(1, 0, 0, 0, 0)",
    "make memory executable": "libc.mprotect(address, 4096, 7)",
    "read another process's memory": "libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0)",
    "set up io_uring": "libc.syscall(425, 1, None)",
    "load a BPF program": "libc.syscall(321, 0, None, 0)",
    "open with openat2": "libc.syscall(437, -100, b'/etc/passwd', None, 0)",
    "handle page faults": "libc.syscall(323, 0)",
    "clone with clone3": "libc.syscall(435, None, 0)",
    "signal another thread group": "libc.syscall(234, 1, 1, 9)",
    "get a keyring": "libc.syscall(250, 0, -3, 1)",
    "use an x32 number": "libc.syscall(0x40000000 + 2, b'/etc/passwd', 0)",
}


BATCH = """
out = []
for attempt in {attempts!r}:
    try:
        exec(attempt)
        out.append(attempt)
    except OSError as error:
        if not ({refused}):
            out.append((attempt, error))
    except (RuntimeError, LookupError, ModuleNotFoundError, ValueError):  # no thread, codec, module, higher limit
        pass
"""


@pytest.mark.parametrize("level", LOCKED)
def test_refused_by_the_kernel(level):
    refused = "'not permitted' in str(error) or error.errno == errno.EMFILE or isinstance(error, socket.gaierror)"
    code = BATCH.format(attempts=list(REFUSED.values()), refused=refused)
    assert reply(code, level=level, preload=("resource", "select")) == "[]"


@pytest.mark.parametrize("level", LOCKED)
@pytest.mark.skipif(sys.platform != "linux", reason="system calls of Linux")
def test_refused_by_the_kernel_without_python(level):
    prelude = """
libc = ctypes.CDLL(None, use_errno=True)
address = id(libc) & ~4095
def call(function, *arguments):
    ctypes.set_errno(0)
    if function(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "")
"""
    attempts = [re.sub(r"^(libc\.\w+)\(", r"call(\1, ", attempt) for attempt in LIBC.values()]
    assert reply(prelude + BATCH.format(attempts=attempts, refused="error.errno == errno.EPERM"), level=level) == "[]"


def test_the_probe_finds_no_hole_at_the_locked_levels():
    for report in levels():
        assert report.level is Level.WEAK or report.possible == (), report


def test_the_weak_level_still_has_no_descriptor_to_give():
    assert (
        reply("try:\n open('/etc/passwd')\nexcept OSError as error:\n out = error.errno == errno.EMFILE", level="weak")
        == "True"
    )


@needs_strong
def test_a_strong_child_cannot_see_other_processes():
    without_filter = set(Mechanism) - {Mechanism.SECCOMP, Mechanism.RLIMITS}
    assert reply("out = os.getpid(), os.getppid()", mechanisms=without_filter) == "(2, 1)"
    code = "try:\n os.kill(1, 9)\n os.kill(1, 19)\nexcept OSError: pass\nout = os.getppid()"
    assert reply(code, mechanisms=without_filter) == "1"  # its init shrugs it off


@needs_strong
def test_a_strong_child_has_no_network_not_even_loopback():
    network_only = set(Mechanism) - {Mechanism.SECCOMP, Mechanism.RLIMITS, Mechanism.LANDLOCK}
    code = """
out = [name for _, name in socket.if_nameindex()]
out.append(socket.socket().connect_ex(('127.0.0.1', 22)))
"""
    # The only interface is a loopback that is down.
    assert reply(code, mechanisms=network_only) in {"['lo', 101]", "['lo', 99]"}


# Descendants. Each grandchild leaves the session and writes to a file for as long as it lives.
ORPHANS = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                fd = os.open(MARK, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
                os.write(fd, b'.')
                os.close(fd)
                time.sleep(0.01)
        os._exit(0)
time.sleep(0.3)
out = 'done'
"""
OPEN_MECHANISMS = {
    "pid namespace": {Mechanism.USER_NAMESPACE, Mechanism.PID_NAMESPACE},
    "no mechanism at all": set(),
}


def _is_quiet(mark: Path) -> bool:
    before = mark.stat().st_size
    time.sleep(0.2)
    return before > 0 and mark.stat().st_size == before


@pytest.mark.parametrize("mechanisms", OPEN_MECHANISMS.values(), ids=OPEN_MECHANISMS)
def test_no_descendant_outlives_the_run(tmp_path, mechanisms):
    mark = tmp_path / "mark"
    assert reply(ORPHANS.replace("MARK", repr(str(mark))), mechanisms=mechanisms) == "done"
    assert _is_quiet(mark)


@pytest.mark.parametrize("mechanisms", OPEN_MECHANISMS.values(), ids=OPEN_MECHANISMS)
def test_no_descendant_outlives_a_timeout(tmp_path, mechanisms):
    mark = tmp_path / "mark"
    code = ORPHANS.replace("MARK", repr(str(mark))) + "time.sleep(60)"
    assert child(code, mechanisms=mechanisms, limits=Limits(wall_seconds=0.6)).exit is Exit.TIMEOUT
    assert _is_quiet(mark)


@pytest.mark.parametrize("mechanisms", OPEN_MECHANISMS.values(), ids=OPEN_MECHANISMS)
def test_no_descendant_outlives_the_judge(tmp_path, mechanisms):
    mark = tmp_path / "mark"
    code = ORPHANS.replace("MARK", repr(str(mark))) + "time.sleep(60)"
    judge = textwrap.dedent(f"""
        from nkismith.verify.sandbox import run
        run({code!r}.encode(), entry={ENTRY!r}, modules={{{ENTRY!r}: {str(ENTRIES / ENTRY)!r} + '.py'}},
            mechanisms={sorted(map(str, mechanisms))!r})
    """)
    process = subprocess.Popen([sys.executable, "-c", judge])
    deadline = time.monotonic() + 20
    while not (mark.exists() and mark.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.2)
    assert _is_quiet(mark)


# Choosing and reporting the level.
def test_asking_for_more_than_the_machine_allows_runs_nothing(tmp_path):
    mark = tmp_path / "mark"
    code = f"os.close(os.open({str(mark)!r}, os.O_CREAT | os.O_WRONLY))"
    with pytest.raises(IsolationUnavailable, match="strong was asked for, this machine allows"):
        child(code, level="strong", mechanisms=())
    assert not mark.exists()


def test_auto_takes_the_best_level_and_says_which():
    assert child("out = 1").isolation.level is REACHABLE[0]


@pytest.mark.parametrize(
    ("missing", "level"),
    [
        (Mechanism.USER_NAMESPACE, Level.SECCOMP),
        (Mechanism.PID_NAMESPACE, Level.SECCOMP),
        (Mechanism.NETWORK_NAMESPACE, Level.SECCOMP),
        (Mechanism.LANDLOCK, Level.SECCOMP),
        (Mechanism.SECCOMP, Level.WEAK),
        (Mechanism.IPC_NAMESPACE, Level.STRONG),
    ],
)
@needs_strong
def test_a_missing_mechanism_lowers_the_level(missing, level):
    result = child("out = 1", mechanisms=set(Mechanism) - {missing})
    assert (result.exit, result.isolation.level) == (Exit.REPLIED, level)
    assert missing not in result.isolation.mechanisms


def test_a_level_is_only_as_good_as_what_was_reached():
    assert level_of(()) is Level.WEAK
    assert level_of({Mechanism.SECCOMP}) is Level.SECCOMP
    assert level_of(set(Mechanism)) is Level.STRONG
    assert str(Isolation.of({Mechanism.SECCOMP, Mechanism.LANDLOCK})) == "seccomp (landlock, seccomp)"


def test_where_the_kernel_refuses_namespaces_the_filter_remains(tmp_path):
    """For real: the judge itself runs under a filter that refuses unshare, as in most containers."""
    judge = textwrap.dedent(f"""
        import ctypes, errno, struct
        from nkismith.verify.sandbox import run, syscalls
        steps = [(0x20, 0, 0, 0), (0x15, 0, 1, {97 if os.uname().machine == "aarch64" else 272}),
                 (0x06, 0, 0, 0x50000 | errno.EPERM), (0x06, 0, 0, 0x7fff0000)]
        code = b"".join(struct.pack("=HBBI", *step) for step in steps)
        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.prctl(syscalls.PR_SET_SECCOMP, 2, ctypes.byref(Program(len(steps), code)))
        result = run(b"out = 1", entry={ENTRY!r}, modules={{{ENTRY!r}: {str(ENTRIES / ENTRY)!r} + '.py'}})
        print(result.exit, result.isolation.level)
    """)
    done = subprocess.run([sys.executable, "-c", judge], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["replied", "seccomp"]


def test_landlock_alone_closes_the_file_system():
    if Mechanism.LANDLOCK not in (levels()[0].isolation or Isolation.of(())).mechanisms:
        pytest.skip("no Landlock here")
    only = {Mechanism.LANDLOCK, Mechanism.NO_NEW_PRIVILEGES}
    code = """
out = []
for attempt in (lambda: open('/etc/passwd'), lambda: os.listdir('/'), lambda: os.mkdir('/var/tmp/nkismith-escape'),
                lambda: os.execv('/bin/true', ['true'])):
    try:
        attempt()
    except PermissionError:
        out.append('refused')
"""
    assert reply(code, mechanisms=only) == str(["refused"] * 4)
    assert landlock.abi() >= 1


HEADERS = [Path(f"/usr/include/{machine}-linux-gnu/asm/unistd_64.h") for machine in ("x86_64",)]


@pytest.mark.skipif(not HEADERS[0].exists(), reason="no kernel headers")
def test_system_call_numbers_are_those_of_the_headers():
    numbers = {}
    for line in HEADERS[0].read_text().splitlines():
        if line.startswith("#define __NR_"):
            _, name, value = line.split()
            numbers[name.removeprefix("__NR_")] = int(value)
    assert {name: pair[0] for name, pair in syscalls._NUMBERS.items()}.items() <= numbers.items()


@pytest.mark.skipif(not Path("/usr/include/asm-generic/unistd.h").exists(), reason="no kernel headers")
def test_system_call_numbers_of_aarch64_are_those_of_the_headers():
    numbers = {}
    for line in Path("/usr/include/asm-generic/unistd.h").read_text().splitlines():
        words = line.split()
        if line.startswith("#define __NR") and len(words) == 3 and words[2].isdigit():
            numbers[words[1].removeprefix("__NR3264_").removeprefix("__NR_")] = int(words[2])
    assert {name: pair[1] for name, pair in syscalls._NUMBERS.items()}.items() <= numbers.items()
