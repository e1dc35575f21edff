"""The simulated nki for every mutation test; kernels in these tests import it at module level through `nl`, `nisa`."""

from nkismith.verify.simulator import install

install()
