"""The pseudo random number generators of VectorE and GpSimdE.

The documentation names XORWOW, its state (6 words a stream; VectorE has 4 streams a lane) and that equal seeds give
equal numbers. The order of the words and of the streams is not documented: here stream s of S gives elements s,
s + S, s + 2S, ... Algorithm: Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003, section 3.1.
"""

import numpy as np

from nkismith.verify.simulator.hardware import PARTITIONS

WORDS = 6  # x, y, z, w, v and the counter d
STREAMS = {"gpsimd": 1, "vector": 4}
WEYL = np.uint32(362437)


class Xorwow:
    """Generators of all lanes of an engine: state [lanes, streams, words]."""

    def __init__(self, streams: int, seed: int) -> None:
        self.state = np.empty((PARTITIONS, streams, WORDS), np.uint32)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Fill every lane's state from one number."""
        words = np.random.SeedSequence(seed).generate_state(self.state.size, np.uint32)
        self.state[...] = words.reshape(self.state.shape)

    def draw(self, lanes: slice, count: int) -> np.ndarray:
        """`count` words a lane, uint32 [lanes, count]."""
        state = self.state[lanes]
        streams = state.shape[1]
        steps = -(-count // streams)
        x, y, z, w, v, d = (state[..., i].copy() for i in range(WORDS))
        words = np.empty((steps, *x.shape), np.uint32)
        for step in range(steps):
            t = x ^ (x >> np.uint32(2))
            x, y, z, w = y, z, w, v
            v = (v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1)))
            d = d + WEYL
            words[step] = v + d
        for i, word in enumerate((x, y, z, w, v, d)):
            state[..., i] = word
        return words.transpose(1, 0, 2).reshape(len(x), -1)[:, :count]


def generator(m, engine):
    """The generator of an engine of a machine."""
    if engine not in m.generators:
        m.generators[engine] = Xorwow(STREAMS[engine], m.seed)
    return m.generators[engine]


def uniform(words):
    """Words as float32 in [0, 1)."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
