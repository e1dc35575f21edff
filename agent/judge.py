"""The judge of a run: verification and the registry, imported only when a draft is to be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nkismith.agent.run import Progress
from nkismith.kernels.spec import Case, OpSpec
from nkismith.results.store import content_hash


class Verifier:
    """`nkismith.verify` and `nkismith.kernels.registry` behind the loop's `Judge` protocol."""

    def check(self, source: str, spec: OpSpec, *, target: str, sdk: str, lnc: int, progress: Progress) -> Any:
        from nkismith import verify

        return verify.check(source, spec, target=target, sdk=sdk, lnc=lnc, progress=progress)

    def profile(self, source: str, spec: OpSpec, case: Case, *, target: str, lnc: int) -> Any:
        from nkismith import verify

        return verify.profile(source, spec, case, target=target, lnc=lnc)

    def accept(self, source: str, spec: OpSpec, evidence: dict[str, Any], root: Path | None) -> Path:
        """Store a verified kernel. `evidence` holds its `verdict`, and whether `allow_weak_isolation` was said.

        Raises NotIsolated for a verdict reached under weak isolation that nobody allowed.
        """
        from nkismith.kernels import registry

        verdict = evidence["verdict"]
        if not verdict["strong_isolation"] and not evidence["allow_weak_isolation"]:
            raise NotIsolated(
                f"{spec.op} was verified, but its Python was only isolated as: {verdict['isolation']}. Accept it on a "
                "machine where `nkismith doctor` finds strong isolation, or say --allow-weak-isolation."
            )
        scope = {name: verdict[name] for name in ("target", "lnc", "sdk")}
        return registry.accept(source, spec, {**scope, "instructions": _instructions(), **evidence}, root=root)


class NotIsolated(Exception):
    """A verdict that was not reached under strong isolation needs a person's word before it counts."""


def _instructions() -> str:
    """Hash of what every instruction of the table means, so that a kernel can be found whose ground has shifted."""
    from nkismith.verify.simulator.cards import card, public

    return content_hash("".join(card(name).markdown() for name in public()))
