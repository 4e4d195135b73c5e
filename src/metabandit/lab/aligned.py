"""Prior alignment as a policy of studies: the version of MTTS that the regret bound is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.lab.environment import World
from metabandit.models.alignment import AlignedBelief, PriorAlignment
from metabandit.streams import ARMS, Stream, keys, substreams


@dataclass(frozen=True)
class Aligned:
    """Every arm of a task once, then Thompson sampling with a prior that stays as it was (Section 5 of the paper).

    >>> from metabandit import lab
    >>> env = lab.GaussianTasks(n_tasks=10, n_arms=2, n_features=3)
    >>> lab.simulate(env, [lab.Aligned(), "oracle-ts"], order="sequential", horizon=10, seeds=2).policies
    ['mtts-aligned', 'oracle-ts']
    """

    name: str = "mtts-aligned"
    mode: str = "sample"

    def player(self, world: World, order: str, seed: int) -> AlignedPlayer:
        """A fresh player of one world."""
        problem = world.problem
        if problem.reward != "real":
            raise InvalidInput("policies", self.name, "policies other than this with rewards of 0 and 1")
        belief = PriorAlignment(problem.model, self.mode).belief(
            problem.n_arms, problem.n_features, seed=seed
        )
        for phi in problem.phi:
            belief.add_task(phi)
        return AlignedPlayer(belief, seed)

    def spec(self) -> dict[str, Any]:
        """The policy as plain data."""
        return {"agent": self.name, "alignment": self.mode}


class AlignedPlayer:
    """A belief with alignment, and the random numbers of its decisions."""

    def __init__(self, belief: AlignedBelief, seed: int) -> None:
        self.belief, self.seed, self.decided = belief, seed, 0

    def decide(self, task: int) -> int:
        key = substreams(keys(self.seed, [self.decided]), int(ARMS))
        self.decided += 1
        return self.belief.choose(task, Stream(int(key[0])))

    def learn(self, task: int, arm: int, reward: float) -> None:
        self.belief.observe(np.array([task]), np.array([arm]), np.array([reward]))
