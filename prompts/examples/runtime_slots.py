"""y [T, D] = sum of pages[slots[i]] for i < count[0]: a loop and indices known only at run time."""

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


@nki.jit
def runtime_slots(pages, slots, count):
    _, T, D = pages.shape  # pages [M, T, D], slots int32 [n], count int32 [1]
    y = nl.ndarray((T, D), dtype=pages.dtype, buffer=nl.shared_hbm)
    n = nisa.scalar_load(count.reshape((1, 1)))
    for t0 in range(0, T, P):
        p = min(P, T - t0)
        total = nl.ndarray((p, D), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)

        def add_page(i, t0=t0, p=p, total=total):
            slot = nisa.scalar_load(slots.reshape((1, slots.shape[0]))[:, nl.ds(i, 1)])
            page = nl.ndarray((p, D), dtype=pages.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=page, src=pages[slot, t0 : t0 + p, :])
            nisa.tensor_tensor(dst=total, data1=total, data2=page, op=nl.add)

        nl.fori_loop(0, n, add_page)
        y_t = nl.ndarray((p, D), dtype=pages.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=y_t, src=total)
        nisa.dma_copy(dst=y[t0 : t0 + p, :], src=y_t)
    return y
