"""Shared by the simulator's tests: `nki` resolves to the simulator before any test module imports it."""

from nkismith.verify.simulator import install

install()
