# op: scale_add
# refused: wrong_arity
# what: returns nothing
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    nl.load(x[0:1])
