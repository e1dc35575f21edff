"""The judge of a run: verification and the registry, imported only when a draft is to be judged."""

from __future__ import annotations

from collections.abc import Mapping
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
        """Store a verified kernel. `evidence` holds its `verdict`, whether `allow_weak_isolation` was said, perhaps the
        score of its `mutation`, and where it comes from.

        Raises NotIsolated for a verdict reached under weak isolation that nobody allowed.
        """
        from nkismith.kernels import registry
        from nkismith.verify.evidence import evidence as complete

        provenance = dict(evidence)
        verdict, mutation = provenance.pop("verdict"), provenance.pop("mutation", None)
        require_isolation(spec, verdict, evidence["allow_weak_isolation"])
        kept = complete(verdict, provenance=provenance, mutation=mutation)
        return registry.accept(source, spec, kept, root=root)


class NotIsolated(Exception):
    """A verdict that was not reached under strong isolation needs a person's word before it counts."""


def require_isolation(spec: OpSpec, verdict: Mapping[str, Any], allowed: bool) -> None:
    """Raise NotIsolated for a verdict under weak isolation, unless that is `allowed`."""
    if not verdict["strong_isolation"] and not allowed:
        raise NotIsolated(
            f"{spec.op} was verified, but its Python was only isolated as: {verdict['isolation']}. Accept it on a "
            "machine where `nkismith doctor` finds strong isolation, or say --allow-weak-isolation."
        )
