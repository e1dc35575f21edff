"""The NKI API on one trace: record a kernel, judge its legality, execute it in NumPy, cost it.

Imports nothing but the standard library, NumPy, ml_dtypes and msgpack: the recording child loads this package.
"""

from nkismith.verify.simulator.install import install, uninstall

__all__ = ["install", "uninstall"]
