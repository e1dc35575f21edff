"""nl.tile_size: the limits of the target the kernel is built for. Source: nki.language.tile_size."""

from __future__ import annotations

import os

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.recorder import active


def _target() -> hardware.Target:
    """The target of the kernel being built, else the one `install` chose."""
    recorder = active()
    if recorder is not None:
        return recorder.target
    from nkismith.verify.simulator.install import setting

    return hardware.target(setting().target)


class TileSize:
    """Hardware tile limits; those that depend on the target are read from the kernel being built."""

    pmax = hardware.PARTITIONS
    psum_bank_fmax_bytes = hardware.PSUM_BANK_BYTES
    psum_bank_fmax = hardware.PSUM_BANK_BYTES // 4
    psum_fmax = psum_bank_fmax
    gemm_stationary_fmax = hardware.STATIONARY_FREE_MAX
    gemm_moving_fmax = hardware.GEMM_MOVING_FREE_MAX
    bn_stats_fmax = hardware.BN_STATS_FREE_MAX
    psum_min_align = hardware.PSUM_ALIGN_BYTES
    sbuf_min_align = hardware.SBUF_ALIGN_BYTES

    @property
    def psum_num_banks(self) -> int:
        """Usable banks a partition: one goes to the transposes that replace those of the DMA, if so asked."""
        replaced = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() in ("1", "true")
        return hardware.PSUM_BANKS - replaced

    @property
    def sbuf_size_bytes(self) -> int:
        """SBUF of all partitions, bytes."""
        return _target().sbuf_total_bytes

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes a partition."""
        return _target().sbuf_usable_bytes

    @property
    def sbuf_fmax(self) -> int:
        """Usable float32 elements a partition."""
        return _target().sbuf_usable_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Usable bytes a partition (deprecated name)."""
        return _target().sbuf_usable_bytes


TILE_SIZE = TileSize()
