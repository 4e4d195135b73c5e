"""From metadata to features: x_i -> Phi_i. One file a kind; `make` chooses."""

from metabandit.features.arrays import Arrays
from metabandit.features.base import Covariance, Features, from_spec, load_covariances_with
from metabandit.features.columns import Columns
from metabandit.features.formula import Formula
from metabandit.features.hilbert_space import HilbertSpace
from metabandit.features.inducing_points import InducingPoints
from metabandit.features.intercepts import Intercepts
from metabandit.features.making import make
from metabandit.features.per_arm import PerArm
from metabandit.features.random_fourier import RandomFourier
from metabandit.features.stacked import Stacked
from metabandit.features.transformed import Transformed

__all__ = [
    "Arrays",
    "Columns",
    "Covariance",
    "Features",
    "Formula",
    "HilbertSpace",
    "InducingPoints",
    "Intercepts",
    "PerArm",
    "RandomFourier",
    "Stacked",
    "Transformed",
    "from_spec",
    "load_covariances_with",
    "make",
]
