"""What two counts a cell say about theta: its mode, its exact draws, the online filter, the dispersion."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.laws import Draw
from metabandit.models import coefficient_sampler as sampling
from metabandit.models.collapsed import CollapsedModel
from metabandit.models.count_table import CountTable
from metabandit.models.families import Family
from metabandit.models.features import TaskFeatures
from metabandit.models.laplace import PRIOR, Dispersion, Mode, Posterior, laplace, learn_dispersion
from metabandit.models.whitening import Whitening
from metabandit.streams import Random, Stream

Array = np.ndarray[Any, Any]

PILOT_KEY = 0x70696C6F  # its random numbers are fixed, so that the method is a function of the data
FEW = (
    16  # more rewards at once than this, and than cells: a Newton step is cheaper than the filter, and better
)


class CollapsedCoefficients:
    """theta given the counts of all cells, in whitened coordinates xi.

    `mean` : (q,) and `cov` : (q, q) are the online filter's. They are all that the sampler "filter" knows of
    xi, and where Newton's method starts otherwise. All else is worked out when asked for after a change.
    """

    def __init__(self, model: CollapsedModel, family: Family, features: TaskFeatures) -> None:
        self.model, self.family = model, family
        self.prior = Whitening.of(model.coef_mean, model.coef_cov, features.n_features)
        self.table = CountTable(features, self.prior.rank)
        self.mean, self.cov = np.zeros(self.prior.rank), np.eye(self.prior.rank)
        self.learned = Dispersion(math.log(PRIOR.median), PRIOR.sd)
        self.n = 0  # observations
        self.fitted = 0  # observations when the dispersion and the method were last chosen
        self.step = 0.0  # of the leapfrog; 0: the independence sampler does
        self._mode: Mode | None = None

    @property
    def exact(self) -> bool:
        return self.model.sampler == "exact"

    @property
    def drawn(self) -> bool:
        """Is the dispersion drawn with the coefficients?"""
        return self.model.dispersion == "drawn"

    @property
    def dispersion(self) -> float:
        """psi: known, or the best one when it was last learned."""
        known = self.model.known_dispersion
        return math.exp(self.learned.log_psi) if known is None else known

    # -- data ----------------------------------------------------------------------------------------------

    def record(self, cells: Array, amounts: Array) -> None:
        """counts += amounts : (n, 2) at cells : (n,)."""
        rows = self.table.rows(cells, self.prior)
        many = len(cells) > max(FEW, self.table.size)
        if many:
            self.table.add(cells, amounts)
        else:
            table = self.table
            self.family.follow(
                rows, cells, amounts, table.x, table.offsets, table.flat, self.dispersion, self.mean, self.cov
            )
        self._changed(len(cells), anchor=many)

    def take_back(self, cells: Array, amounts: Array) -> None:
        """counts -= amounts; refused, with nothing changed, if that were more than there is."""
        self.table.add(cells, -amounts)
        left = self.table.flat[cells]
        if (left < -1e-9 * (1.0 + amounts)).any():
            self.table.add(cells, amounts)
            task, arm = divmod(int(cells[np.argmin(left.min(axis=1))]), self.table.counts.shape[1])
            where = f"<more rewards of task {task}, arm {arm} than were observed>"
            raise InvalidInput("reward", where, "observed rewards")
        self.table.flat[cells] = np.maximum(left, 0.0)
        self._changed(-len(cells), anchor=True)

    def _changed(self, how_many: int, anchor: bool) -> None:
        self.n += how_many
        self._mode = None
        if not self.exact and (anchor or self._due()):
            self._anchor(self._solve())

    # -- the mode ------------------------------------------------------------------------------------------

    def posterior(self, psi: float | None) -> Posterior:
        """The posterior at a dispersion, or jointly with it."""
        return Posterior(self.family, self.table.x, self.table.offsets, self.table.gathered(), psi)

    def current(self) -> Mode:
        """The mode given the data."""
        if self._mode is None:
            self._mode = self._solve() if self.exact else self.posterior(self.dispersion).mode(self.mean)
            if self.exact:
                self._anchor(self._mode)
        return self._mode

    def _due(self) -> bool:
        return abs(self.n - self.fitted) > self.model.refit * self.fitted

    def _solve(self) -> Mode:
        """The mode; when due, the dispersion and the sampling method are chosen anew."""
        posterior = self.posterior(self.dispersion)
        if not self._due():
            return posterior.mode(self.mean)
        mode = None
        if self.model.known_dispersion is None:
            start = self.learned.log_psi if self.fitted else None
            self.learned, mode = learn_dispersion(posterior, self.mean, start)
        mode = mode or posterior.mode(self.mean)
        self.fitted = self.n
        if self.exact:
            self._choose_method(mode)
        return mode

    def _choose_method(self, mode: Mode) -> None:
        target, proposal = self._target(mode)
        good = sampling.suits_metropolis(target, proposal, Stream(PILOT_KEY))
        self.step = 0.0 if good else sampling.tuned_step(target, proposal, Stream(PILOT_KEY))

    def _anchor(self, mode: Mode) -> None:
        self.mean = mode.xi.copy()
        self.cov = mode.root @ mode.root.T

    def _target(self, mode: Mode) -> tuple[Posterior, sampling.Proposal]:
        if self.drawn:
            return self.posterior(None), laplace(mode, self.learned)
        return self.posterior(mode.psi), laplace(mode)

    @property
    def information(self) -> float:
        """log |H| where the prior precision is 1: at the mode, or of the filter."""
        return self.current().log_det if self.exact else -float(np.linalg.slogdet(self.cov)[1])

    @property
    def log_evidence(self) -> float:
        return self.posterior(self.dispersion).log_evidence(self.current())

    # -- draws ---------------------------------------------------------------------------------------------

    def point(self, rng: Random) -> Array:
        """One draw of xi, (q,), or with the dispersion drawn of (xi, log psi), (q + 1,)."""
        if not self.exact:
            return self._filtered(rng, 1).reshape(-1)
        target, proposal = self._target(self.current())
        if self.step:
            return sampling.hamiltonian_draw(target, proposal, rng, self.step)[0]
        return sampling.metropolis_draw(target, proposal, rng)[0]

    def chains(self, rng: Random, length: int) -> tuple[str, Array, float]:
        """The method, draws (CHAINS, length, q or q + 1), and the acceptance rate."""
        if not self.exact:
            points = self._filtered(rng, sampling.CHAINS * length)
            return "filter", points.reshape(sampling.CHAINS, length, self.prior.rank), 1.0
        target, proposal = self._target(self.current())
        if self.step:
            return "hamiltonian", *sampling.hamiltonian_chains(target, proposal, rng, length, self.step)
        return "metropolis", *sampling.metropolis_chains(target, proposal, rng, length)

    def _filtered(self, rng: Random, size: int) -> Array:
        z = np.asarray(rng.standard_normal((size, self.prior.rank)))
        points: Array = self.mean + z @ np.linalg.cholesky(self.cov).T
        return points

    def theta(self, points: Array) -> Array:
        """theta (..., d) of draws (..., q or q + 1)."""
        return self.prior.theta(points[..., : self.prior.rank])

    def as_draw(self, points: Array) -> Draw:
        """Draws with what was drawn, or learned, beside theta."""
        theta = self.theta(points)
        if self.model.known_dispersion is not None:
            return Draw(theta)
        psi = np.exp(points[..., -1]) if self.drawn else np.full(points.shape[:-1], self.dispersion)
        return Draw(theta, dispersion=psi if points.ndim > 1 else float(psi))

    # -- growth and saving ---------------------------------------------------------------------------------

    def grow(self, places: Array) -> None:
        """New coefficients at these places of the longer theta, on which no cell so far depends."""
        fresh, old = self.prior.insert(places), len(self.mean)
        self.table.add_coordinates(fresh)
        cov = np.eye(old + fresh)
        cov[:old, :old] = self.cov
        self.mean, self.cov = np.append(self.mean, np.zeros(fresh)), cov
        self._mode = None

    def state(self) -> dict[str, Any]:
        return {
            "table": self.table.state(),
            "prior": {"mean": self.prior.mean.copy(), "root": self.prior.root.copy()},
            "filter": {"mean": self.mean.copy(), "cov": self.cov.copy()},
            "dispersion": {"log_psi": self.learned.log_psi, "sd": self.learned.sd},
            "n": self.n,
            "fitted": self.fitted,
            "step": self.step,
        }

    def restore(self, state: dict[str, Any], features: TaskFeatures) -> None:
        self.prior = Whitening(*(np.array(state["prior"][name], float) for name in ("mean", "root")))
        self.mean, self.cov = (np.array(state["filter"][name], float) for name in ("mean", "cov"))
        self.table = CountTable(features, self.prior.rank)
        self.table.restore(state["table"], self.prior)
        self.learned = Dispersion(float(state["dispersion"]["log_psi"]), float(state["dispersion"]["sd"]))
        self.n, self.fitted, self.step = int(state["n"]), int(state["fitted"]), float(state["step"])
        self._mode = None
