# op: set_row
# refused: mismatch,untouched_modified
# what: leaves the table as it is
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def set_row(table, row, slot):
    nl.load(row.reshape((1, row.shape[0])))
