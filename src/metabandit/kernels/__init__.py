"""Compiled loops: arrays in, arrays out, nothing else.

Imported on first use, because numba is slow to import.
"""

from __future__ import annotations

import importlib
from types import ModuleType


class Lazy:
    """A module of this package, imported when one of its functions is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        module: ModuleType = importlib.import_module(f"metabandit.kernels.{self._name}")
        value: object = getattr(module, attribute)
        self.__dict__[attribute] = value  # the next look-up is a plain attribute
        return value
