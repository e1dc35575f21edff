"""The judge of a run: verification and the registry, imported only when a draft is to be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nkismith.agent.run import Progress
from nkismith.kernels.spec import Case, OpSpec


class Verifier:
    """`nkismith.verify` and `nkismith.kernels.registry` behind the loop's `Judge` protocol."""

    def check(self, source: str, spec: OpSpec, *, target: str, sdk: str, lnc: int, progress: Progress) -> Any:
        from nkismith import verify

        return verify.check(source, spec, target=target, sdk=sdk, lnc=lnc, progress=progress)

    def profile(self, source: str, spec: OpSpec, case: Case, *, target: str, lnc: int) -> Any:
        from nkismith import verify

        return verify.profile(source, spec, case, target=target, lnc=lnc)

    def accept(self, source: str, spec: OpSpec, evidence: dict[str, Any], root: Path | None) -> Path:
        from nkismith.kernels import registry

        return registry.accept(source, spec, evidence, root=root)
