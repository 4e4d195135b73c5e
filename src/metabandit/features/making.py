"""From what a user gives as `metadata` to features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metabandit.errors import InvalidInput
from metabandit.features.base import Features
from metabandit.features.columns import Columns
from metabandit.features.intercepts import Intercepts

ACCEPTED = (
    'None, a formula such as "age + C(country)", a list of names of numeric columns, a dict from name to '
    '"number", "category" or a list of levels, a fitted transformer, or features'
)


def make(metadata: Any, arms: list[str]) -> Features:
    """Features for a bandit with these arms.

    None: `Intercepts`. Text: `Formula`. A list of names: `Columns` of numbers. A dict: `Columns`. Anything
    with `transform`: `Transformed`. Features stay what they are.

    >>> from metabandit import features
    >>> features.make(["age", "visits"], ["a", "b"]).columns
    ['intercept', 'age', 'visits']
    >>> features.make(None, ["a", "b"]).n_features(2)
    2
    """
    if metadata is None:
        return Intercepts()
    if isinstance(metadata, Features):
        return metadata.bind(arms)
    if isinstance(metadata, str):
        from metabandit.features.formula import Formula

        return Formula(metadata)
    if isinstance(metadata, (list, tuple, Mapping)):
        if not metadata:
            raise InvalidInput("metadata", metadata, ACCEPTED)
        return Columns(metadata if isinstance(metadata, Mapping) else list(metadata))
    if callable(getattr(metadata, "transform", None)) and not isinstance(metadata, type):
        from metabandit.features.transformed import Transformed

        return Transformed(metadata)
    raise InvalidInput("metadata", metadata, ACCEPTED)
