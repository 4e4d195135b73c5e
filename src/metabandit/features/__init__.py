"""From metadata to features: x_i -> Phi_i. One file a kind; `make` chooses."""

from metabandit.features.arrays import Arrays
from metabandit.features.base import Covariance, Features, from_spec, load_covariances_with
from metabandit.features.columns import Columns
from metabandit.features.intercepts import Intercepts
from metabandit.features.making import make
from metabandit.features.per_arm import PerArm

__all__ = [
    "Arrays",
    "Columns",
    "Covariance",
    "Features",
    "Intercepts",
    "PerArm",
    "from_spec",
    "load_covariances_with",
    "make",
]
