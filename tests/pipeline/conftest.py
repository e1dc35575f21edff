"""One thread: the models here are tiny, and threads that wait for each other on a busy machine cost tenfold."""

import torch

torch.set_num_threads(1)
