"""One term of a design: a product of factors."""

from __future__ import annotations

from dataclasses import dataclass, field

from metabandit.features.computed import Computed


@dataclass(eq=False)
class Term:
    """A product of factors; a factor is the index of a source, or is computed."""

    name: str
    factors: list[int | Computed]
    places: dict[tuple[int, ...], int] = field(default_factory=dict)
    """first column of each combination of level codes; () if the term has no category"""

    @property
    def lookups(self) -> list[int]:
        return [factor for factor in self.factors if isinstance(factor, int)]
