"""The variant `published` of every policy of the paper's Figure 2: what its authors' code did.

docs/lab/published.md says for each what the text says, what the code did, and what is done here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metabandit.lab.agents import AGENTS
from metabandit.lab.environment import World
from metabandit.lab.players import ModelPlayer
from metabandit.lab.published.base import Published
from metabandit.lab.published.binary import BinaryIndividual, BinaryMeta, BinaryMTTS, BinaryOSFA
from metabandit.lab.published.gaussian import (
    GaussianIndividual,
    GaussianLinear,
    GaussianMeta,
    GaussianMTTS,
    GaussianMTTSApprox,
    GaussianOSFA,
)
from metabandit.lab.published.glb import BinaryGLB


@dataclass(frozen=True)
class GaussianOracle(Published):
    """oracle-TS: as stated. IT IS GIVEN THE TRUE prior means E[r_i | x_i], which is what it is for."""

    name: str = "oracle-ts"

    def _player(self, world: World, order: str, seed: int) -> ModelPlayer:
        return AGENTS["oracle-ts"].player(world, order, seed)


@dataclass(frozen=True)
class BinaryOracle(GaussianOracle):
    """oracle-TS with rewards of 0 and 1: as stated. IT IS GIVEN THE TRUE prior means."""

    reward = "binary"


_REAL = (
    GaussianMTTS(), GaussianMTTSApprox(), GaussianOracle(), GaussianLinear(), GaussianMeta(), GaussianIndividual(),
    GaussianOSFA(),
)  # fmt: skip
_BINARY = (BinaryMTTS(), BinaryOracle(), BinaryGLB(), BinaryMeta(), BinaryIndividual(), BinaryOSFA())

PUBLISHED: dict[str, dict[str, Any]] = {
    "real": {policy.name: policy for policy in _REAL},
    "binary": {policy.name: policy for policy in _BINARY},
}
