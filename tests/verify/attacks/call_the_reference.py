# op: scale_add
# refused: forbidden_import
# what: imports the reference of its own spec
import nki
import nki.isa as nisa
import nki.language as nl


from .reference import scale_add as reference


@nki.jit
def scale_add(x, y):
    return reference(x, y)
