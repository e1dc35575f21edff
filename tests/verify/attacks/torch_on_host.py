# op: scale_add
# refused: forbidden_import
# what: computes in PyTorch, imported late
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(x, y):
    import torch

    return torch.add(y, x, alpha=2)
