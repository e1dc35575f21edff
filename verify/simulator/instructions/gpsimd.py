"""GpSimdE: index generation, selection, gathers. SBUF only."""

import numpy as np

from nkismith.verify.simulator.instruction import PLAIN, SBUF, instruction, out


@instruction(engines=("gpsimd",), taint="elementwise", cost="150 + N")
class iota:
    """dst = offset + p * channel_multiplier + the steps of a pattern [[step, count], ...], in int32."""

    def signature(dst: out(SBUF), pattern: PLAIN, offset: PLAIN = 0, channel_multiplier: PLAIN = 0): ...

    def check(site):
        counts = int(np.prod([count for _, count in site.attr("pattern")]))
        if counts != site.free("dst"):
            raise site.refuse(
                "operand_shapes", f"the pattern has {counts} values, dst {site.free('dst')}", "match them"
            )

    def run(m, site):
        m.put("dst", affine(m, site, site.partitions("dst")))


def affine(m, site, partitions):
    """The affine values of iota and affine_select: int64 [P, N]."""
    steps = np.zeros((1,), np.int64)
    for step, count in site.attr("pattern"):
        steps = (steps[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    rows = np.arange(partitions, dtype=np.int64)[:, None] * site.attr("channel_multiplier")
    return m.value(site.attr("offset")) + rows + steps[None, :]
