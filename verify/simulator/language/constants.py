"""nl.tile_size: the limits of the target the kernel is built for. Source: nki.language.tile_size."""

from __future__ import annotations

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.recorder import current


class TileSize:
    """Hardware tile limits; those that depend on the target are read from the kernel being built."""

    pmax = hardware.PARTITIONS
    psum_bank_fmax_bytes = hardware.PSUM_BANK_BYTES
    psum_bank_fmax = hardware.PSUM_BANK_BYTES // 4
    psum_fmax = psum_bank_fmax
    gemm_stationary_fmax = hardware.STATIONARY_FREE_MAX
    gemm_moving_fmax = 512
    bn_stats_fmax = hardware.BN_STATS_FREE_MAX
    psum_min_align = hardware.PSUM_ALIGN_BYTES
    sbuf_min_align = hardware.SBUF_ALIGN_BYTES
    psum_num_banks = hardware.PSUM_BANKS

    @property
    def sbuf_size_bytes(self) -> int:
        """SBUF of all partitions, bytes."""
        return current().target.sbuf_total_bytes

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes a partition."""
        return current().target.sbuf_usable_bytes

    @property
    def sbuf_fmax(self) -> int:
        """Usable float32 elements a partition."""
        return current().target.sbuf_usable_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Usable bytes a partition (deprecated name)."""
        return current().target.sbuf_usable_bytes


TILE_SIZE = TileSize()
