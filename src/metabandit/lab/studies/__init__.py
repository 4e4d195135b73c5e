"""The studies. A new one is one file here with a `STUDY`, and its name in NAMES; it is found by its name."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from metabandit.errors import InvalidInput

if TYPE_CHECKING:
    from metabandit.lab.study import Study

NAMES = (
    "figure-2-gaussian", "figure-2-bernoulli", "figure-3-robustness", "figure-4-multitask-gaussian",
    "figure-5-multitask-bernoulli", "figure-6-trends", "theory", "variances",
    "covariance", "refresh", "peers", "nonlinear", "contextual", "drift", "real-data",
)  # fmt: skip


def study(name: str) -> Study:
    """The study of this name.

    >>> from metabandit.lab import studies
    >>> studies.study("figure-2-gaussian").seeds
    100
    """
    if name not in NAMES:
        near = difflib.get_close_matches(str(name), NAMES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidInput("study", name, f"one of {', '.join(NAMES)}{hint}")
    module = importlib.import_module(f"metabandit.lab.studies.{name.replace('-', '_')}")
    found: Study = module.STUDY
    return found
