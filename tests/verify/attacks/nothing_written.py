# op: scale_add
# refused: unwritten_output
# what: an output that nothing writes
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
