"""Accepted kernels: store them with their evidence, find the one that fits, refuse what changed afterwards.

A kernel lives in `<op folder>/accepted/<first 8 digits of its hash>/` as `kernel.py` and `accepted.json`. One
source may hold verdicts for several SDKs, targets, dtypes, LNC degrees and domains; `find` dispatches over them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nkismith.kernels import spec as specs
from nkismith.kernels.schema import Dim
from nkismith.kernels.spec import OpSpec

LINE = 1000  # characters of a line of accepted.json
_NEEDED = ("target", "lnc", "dtypes", "domain", "accepted_at")  # of each verdict
_SCOPE = ("sdk", "target", "lnc", "dtypes", "domain")  # what a verdict is for; a new one for the same scope replaces it


class RegistryError(Exception):
    """Something about accepted kernels that a person must act on: one line with what, where, how to fix."""


class NoKernel(RegistryError):
    """Nothing accepted fits; the message lists what exists."""


class StaleKernel(RegistryError):
    """A file changed after the kernel was accepted; the message names it and the command that verifies again."""


@dataclass(frozen=True)
class AcceptedKernel:
    """One accepted source with one of its verdicts.

    evidence: hashes (`kernel`, `spec`, `reference`, `instructions`), scope (`sdk`, `target`, `lnc`, `dtypes`,
    `domain`), and whatever the verdict recorded. stale: why it may not be used, or "".
    """

    op: str
    path: Path
    source: str
    evidence: dict[str, Any]
    stale: str = ""

    @property
    def scope(self) -> str:
        """What it was verified for, in words."""
        e = self.evidence
        domain = "; ".join(f"{name} {Dim.model_validate(dim).text}" for name, dim in e["domain"].items())
        sdk = f" SDK {e['sdk']}" if "sdk" in e else ""
        return f"{e['target']} LNC {e['lnc']}{sdk} {','.join(e['dtypes']) or 'fixed dtypes'} ({domain})"

    @property
    def age(self) -> tuple[tuple[int, ...], str]:
        """Sorts by the SDK it was verified for, then by when."""
        return tuple(int(part) for part in self.evidence.get("sdk", "0").split(".")), self.evidence["accepted_at"]

    def fits(self, target: str, dtype: str | None, lnc: int, dims: Mapping[str, int] | None) -> bool:
        e = self.evidence
        domain = {name: Dim.model_validate(dim) for name, dim in e["domain"].items()}
        outside = [n for n, size in (dims or {}).items() if n not in domain or not domain[n].allows(size)]
        same_dtype = dtype is None or not e["dtypes"] or dtype in e["dtypes"]
        return (e["target"], e["lnc"]) == (target, lnc) and same_dtype and not outside


def find(
    op: str | Path,
    *,
    target: str,
    dtype: str | None,
    lnc: int,
    dims: Mapping[str, int] | None = None,
    sdk: str | None = None,
    root: Path | None = None,
) -> AcceptedKernel:
    """The newest accepted kernel of `op` (a bundled name or a spec folder) that covers the request.

    dims: sizes the call will have; a kernel whose domain does not hold them is passed over. sdk: the one it must have
    been verified for; by default the newest that there is. root: where accepted kernels are kept, the op's own folder
    by default.
    Raises NoKernel (with what exists), StaleKernel (with the file and the command), spec.UnknownOp.
    """
    spec = specs.load(op)
    known = list(_stored(spec, root))
    fitting = [k for k in known if k.fits(target, dtype, lnc, dims) and sdk in (None, k.evidence.get("sdk"))]
    if not fitting:
        asked = " ".join(
            [
                target,
                f"LNC {lnc}",
                f"SDK {sdk}" if sdk else "",
                dtype or "",
                *(f"{n}={v}" for n, v in (dims or {}).items()),
            ]
        )
        have = " | ".join(k.scope for k in known) or "none"
        raise NoKernel(
            f"No accepted kernel of {spec.op} for {' '.join(asked.split())}. Accepted: {have}. "
            f"Make one with `nkismith draft {spec.op} --target {target}`."
        )
    best = max(fitting, key=lambda k: k.age)
    if best.stale:
        raise StaleKernel(best.stale)
    return best


def all(root: Path | None = None) -> list[AcceptedKernel]:
    """Every accepted kernel of the bundled ops under `root`, one entry a verdict, stale ones included."""
    return [k for name in specs.names() for k in _stored(specs.load(name), root)]


def of(spec: OpSpec, root: Path | None = None) -> list[AcceptedKernel]:
    """Every accepted kernel of one op, bundled or not, one entry a verdict, stale ones included."""
    return list(_stored(spec, root))


def amend(kernel: AcceptedKernel, parts: Mapping[str, Any]) -> None:
    """Replace parts of one stored verdict's evidence, such as its profile; its hashes, scope and age stay.

    Raises StaleKernel if its files have changed: new evidence would be for another kernel.
    """
    if kernel.stale:
        raise StaleKernel(kernel.stale)
    record = kernel.path.parent / "accepted.json"
    stored = _read(record)
    for verdict in stored["verdicts"]:
        if _scope(verdict) == _scope(kernel.evidence):
            verdict.update(json.loads(json.dumps(parts)))
    _write(record, _readable(stored))


def accept(source: str, spec: OpSpec, evidence: Mapping[str, Any], root: Path | None = None) -> Path:
    """Store `source` with its evidence and return the path of kernel.py.

    evidence must hold `target`, `lnc` and `instructions` (an opaque hash of what the kernel's instructions mean); it
    may hold `dtypes` and `domain` (the spec's own by default) and anything else worth keeping. Hashes of kernel, spec
    and reference and the time are added here. Each file is written beside its place and renamed; a verdict for the
    same scope in another source is superseded.
    """
    missing = [key for key in ("target", "lnc", "instructions") if key not in evidence]
    if missing:
        raise RegistryError(f"{spec.op}: the evidence lacks {', '.join(missing)}, so nothing could find the kernel")
    verdict = {
        "dtypes": spec.dtypes,
        "domain": {n: d.model_dump(exclude_defaults=True) for n, d in spec.dims.items()},
        **evidence,
        "accepted_at": datetime.now(UTC).isoformat(timespec="microseconds"),
    }
    verdict = json.loads(json.dumps(verdict))  # as it will be read back, so that scopes compare
    hashes = {"op": spec.op, "kernel": _hash(source.encode()), **_spec_hashes(spec)}
    place = _place(spec, root)
    folder = place / hashes["kernel"][:8]
    for other in sorted(place.glob("*/accepted.json")):
        _supersede(other, verdict, keep=other.parent == folder)
    kept = json.loads((folder / "accepted.json").read_text()) if (folder / "accepted.json").is_file() else {}
    verdicts = kept["verdicts"] if {**kept, "verdicts": None} == {**hashes, "verdicts": None} else []
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "kernel.py", source)
    _write(folder / "accepted.json", _readable({**hashes, "verdicts": [*verdicts, verdict]}))
    return folder / "kernel.py"


def _scope(verdict: Mapping[str, Any]) -> list[Any]:
    return [verdict.get(key) for key in _SCOPE]


def _place(spec: OpSpec, root: Path | None) -> Path:
    return (spec.folder if root is None else Path(root) / spec.op) / "accepted"


def _stored(spec: OpSpec, root: Path | None) -> Iterator[AcceptedKernel]:
    for record in sorted(_place(spec, root).glob("*/accepted.json")):
        stored = _read(record)
        path = record.parent / "kernel.py"
        data = path.read_bytes() if path.is_file() else b""
        stale = _staleness(spec, path, data, stored)
        source = data.decode("utf-8", errors="replace")  # what is not UTF-8 is not what was accepted
        for verdict in stored.pop("verdicts"):
            yield AcceptedKernel(spec.op, path, source, {**stored, **verdict}, stale)


def _read(record: Path) -> dict[str, Any]:
    """What accepted.json holds. Raises RegistryError if it is not what `accept` writes."""
    try:
        stored = json.loads(record.read_text(encoding="utf-8"))
        lacking = [part for part in ("op", "kernel", "spec", "reference") if not isinstance(stored[part], str)]
        lacking += [key for verdict in stored["verdicts"] for key in _NEEDED if key not in verdict]
    except (ValueError, KeyError, TypeError) as error:
        raise RegistryError(f"{record} is not evidence ({type(error).__name__}: {error}); delete its folder") from error
    if lacking:
        raise RegistryError(f"{record} lacks {', '.join(lacking)}; delete its folder, or accept the kernel again")
    return stored


def _staleness(spec: OpSpec, path: Path, data: bytes, stored: Mapping[str, str]) -> str:
    now = {"kernel": _hash(data), **_spec_hashes(spec)}
    files = {"kernel": path, "spec": spec.folder / "spec.yaml", "reference": spec.folder / "reference.py"}
    for part, file in files.items():
        if stored[part] != now[part]:
            return (
                f"{file} changed after {path.parent.name} of {spec.op} was accepted. Verify it again: "
                f"nkismith accept {path} --op {spec.op}"
            )
    return ""


def _spec_hashes(spec: OpSpec) -> dict[str, str]:
    return {
        "spec": _hash((spec.folder / "spec.yaml").read_bytes()),
        "reference": _hash((spec.folder / "reference.py").read_bytes()),
    }


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _supersede(record: Path, verdict: Mapping[str, Any], keep: bool) -> None:
    stored = _read(record)
    left = [v for v in stored["verdicts"] if _scope(v) != _scope(verdict)]
    if left or keep:
        _write(record, _readable({**stored, "verdicts": left}))
    else:
        shutil.rmtree(record.parent)


def _readable(record: Mapping[str, Any]) -> str:
    """JSON with one line for whatever fits a line, so that a diff shows which case changed."""

    def text(value: Any, margin: str) -> str:
        line = json.dumps(value)
        if len(line) <= LINE or not isinstance(value, Mapping | list):
            return line
        inner = margin + " "
        if isinstance(value, Mapping):
            items = [f"{json.dumps(k)}: {text(v, inner)}" for k, v in value.items()]
        else:
            items = [text(v, inner) for v in value]
        opening, closing = "{}" if isinstance(value, Mapping) else "[]"
        return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{margin}{closing}"

    return text(json.loads(json.dumps(record)), "") + "\n"


def _write(path: Path, text: str) -> None:
    """Write beside the target and rename, so that a reader or a kill never sees half a file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
