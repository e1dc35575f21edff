"""A judge that reads its verdict off the draft, and a server that speaks the Messages API from a script."""

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from nkismith.results.store import content_hash

MODEL = "claude-opus-5-5"


def kernel(verdict, change="", extra=""):
    """A reply whose draft the fake judge understands: `ok 120.5` (latency in µs) or `bad REASON`."""
    head = f"Change: {change}\n\n" if change else ""
    return f"{head}Here it is.\n\n```python\n# {verdict}\n{extra}pass\n```\n"


@dataclass(frozen=True)
class FakeProfile:
    """With the fields of verify.timing's Profile that the loop reads."""

    latency_us: float
    label: str = "modelled"
    floor_us: float = 50.0
    bound: str = "hbm"
    diagnosis: tuple = ("VectorE waits for DMA",)
    hbm_read_bytes: int = 1_000_000
    hbm_write_bytes: int = 500_000
    sbuf_peak_bytes: int = 4096
    psum_peak_bytes: int = 0
    spill_bytes: int = 0
    instruction_count: int = 1234

    @property
    def low_us(self):
        return 0.8 * self.latency_us

    @property
    def high_us(self):
        return 1.3 * self.latency_us

    def to_dict(self):
        return {
            **self.__dict__,
            "low_us": self.low_us,
            "high_us": self.high_us,
            "engines": {
                "vector": {"busy_us": 10.0, "busy_percent": 10.0, "instruction_count": 7},
                "tensor": {"busy_us": 0.0, "busy_percent": 0.0, "instruction_count": 0},
            },
            "dma": {"active_time_us": 40.0, "transfer_count": 99, "mean_contiguous_bytes": 512.0},
            "by_line": [{"file": "k.py", "line": 2, "opcode": "dma_copy", "busy_us": 30.0, "percent": 30.0}],
        }


@dataclass(frozen=True)
class FakeVerdict:
    accepted: bool
    stage: str
    reason: str | None
    message: str
    profile: FakeProfile | None = None
    line: int | None = None
    fix: str = ""
    case: str | None = None
    max_ratio: float = 0.0
    isolation: str = "none"

    def to_dict(self):
        return {**self.__dict__, "profile": self.profile and self.profile.to_dict()}


class FakeJudge:
    """Counts its checks and what it accepted."""

    def __init__(self):
        self.checked, self.accepted = [], []

    def check(self, source, spec, *, target, sdk, lnc, progress):
        self.checked.append(source)
        progress("compare", "S=30 C=40")
        words = source.splitlines()[0].split()
        if words[1] == "ok":
            return FakeVerdict(True, "profile", None, "verified", FakeProfile(float(words[2])))
        return FakeVerdict(
            False, "compare", words[2], f"y is off: {words[2]}", line=2, fix="look again", case="S=30 C=40"
        )

    def profile(self, source, spec, case, *, target, lnc):
        raise AssertionError("the verdict already carries a profile")

    def accept(self, source, spec, evidence, root):
        self.accepted.append((source, evidence))
        return root / spec.op / content_hash(source)[-8:] / "kernel.py"


# -- the Messages API --------------------------------------------------------------------------------------


@dataclass
class Say:
    """A streamed reply. Usage None claims every output token that the request allowed."""

    text: str
    input_tokens: int = 1000
    output_tokens: int | None = 500
    cache_read: int = 0
    cache_write: int = 0
    stop_reason: str = "end_turn"
    cut: bool = False  # hang up before the last events
    error_event: str = ""
    before: object = None  # called when the request arrived
    delay_s: float = 0.0


@dataclass
class Refuse:
    """An HTTP error."""

    status: int
    kind: str = "overloaded_error"
    message: str = "try later"
    retry_after: str = ""


@dataclass
class Raw:
    """Bytes that are no Messages stream."""

    body: bytes
    content_type: str = "text/event-stream"


class MessagesServer:
    """Answers POST /v1/messages from `script`, one entry a request; the last entry repeats."""

    def __init__(self, script):
        self.script, self.requests = list(script), []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    outer.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
                    action = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                outer._answer(self, action, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler, action, body):
        if isinstance(action, Refuse):
            content = json.dumps({"type": "error", "error": {"type": action.kind, "message": action.message}}).encode()
            handler.send_response(action.status)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(content)))
            if action.retry_after:
                handler.send_header("retry-after", action.retry_after)
            handler.end_headers()
            handler.wfile.write(content)
            return
        if isinstance(action, Raw):
            handler.send_response(200)
            handler.send_header("content-type", action.content_type)
            handler.send_header("content-length", str(len(action.body)))
            handler.end_headers()
            handler.wfile.write(action.body)
            return
        if action.before:
            action.before()
        assert body["stream"] is True
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        for name, data in self._events(action, body):
            if action.delay_s:
                time.sleep(action.delay_s)
            try:
                handler.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
                handler.wfile.flush()
            except OSError:  # the client hung up
                return
        handler.close_connection = True

    def _events(self, action, body):
        usage = {
            "input_tokens": action.input_tokens, "output_tokens": 1,
            "cache_read_input_tokens": action.cache_read, "cache_creation_input_tokens": action.cache_write,
        }  # fmt: skip
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [],
                   "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
        yield "message_start", {"type": "message_start", "message": message}
        yield (
            "content_block_start",
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        )
        half = len(action.text) // 2
        for part in (action.text[:half], action.text[half:]):
            yield "content_block_delta", {
                "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}
            }  # fmt: skip
        if action.error_event:
            yield "error", {"type": "error", "error": {"type": action.error_event, "message": "Overloaded"}}
            return
        if action.cut:
            return
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        output = body["max_tokens"] if action.output_tokens is None else action.output_tokens
        yield "message_delta", {
            "type": "message_delta", "delta": {"stop_reason": action.stop_reason, "stop_sequence": None},
            "usage": {"output_tokens": output},
        }  # fmt: skip
        yield "message_stop", {"type": "message_stop"}
