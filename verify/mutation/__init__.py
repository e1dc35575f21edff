"""Mutation testing: make small mistakes in a right kernel, and count how many the verdict finds.

    kernel ─> mutants (`traces`, `sources`) ─> what the verdict asks (`campaign`) ─> killed | excluded | survived

A spec whose verdict lets mistakes pass is too weak, whichever kernel it is looking at.
"""

from nkismith.verify.mutation.campaign import NotRight, mutate
from nkismith.verify.mutation.score import MINIMUM, REQUIRED, Outcome, Score

__all__ = ["MINIMUM", "REQUIRED", "NotRight", "Outcome", "Score", "mutate"]
