"""What two counts a cell say about theta: its mode, its exact draws, the online filter, the dispersion."""

from __future__ import annotations

import math
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.laws import Draw
from metabandit.models import coefficient_sampler as sampling
from metabandit.models.collapsed import CollapsedModel
from metabandit.models.collapsed_learning import learn
from metabandit.models.count_table import WHOLE, CountTable, Saved
from metabandit.models.families import Family
from metabandit.models.features import TaskFeatures
from metabandit.models.laplace import LIMIT, PRIOR, Dispersion, Mode, Posterior, laplace, with_idle
from metabandit.models.scaled_prior import ScaledPrior
from metabandit.models.whitening import Whitening
from metabandit.streams import Random, Stream

Array = np.ndarray[Any, Any]

PILOT_KEY = 0x70696C6F  # its random numbers are fixed, so that the method is a function of the data
# More rewards at once than this, and than there are cells: a Newton step is cheaper than the filter, and better.
FEW = 16
ROUNDING = 4.0 * float(np.finfo(float).eps)  # of an amount taken back


class CollapsedCoefficients:
    """theta given the counts of all cells, in whitened coordinates xi.

    `mean` : (q,) and `cov` : (q, q) are the online filter's. They are all that the sampler "filter" knows of
    xi, and where Newton's method starts otherwise. All else is worked out when asked for after a change.
    Coordinates about which there are data are busy; the rest are N(0, 1) still, and drawn without more ado. What
    is believed of the old coefficients is therefore not touched at all when new ones are added.
    """

    def __init__(
        self, model: CollapsedModel, family: Family, features: TaskFeatures, groups: Any = None
    ) -> None:
        self.model, self.family = model, family
        self.scaled = ScaledPrior(model.coef_mean, model.coef_cov, features, groups)
        self._centred = True  # are the scales where they belong while there are no data?
        self.table = CountTable(features, self.prior.rank)
        self.mean, self.cov = np.zeros(self.prior.rank), np.eye(self.prior.rank)
        self.learned = Dispersion(math.log(PRIOR.median), PRIOR.sd)
        self.n = 0  # observations
        self.fitted = 0  # observations when the dispersion, the scales and the method were last chosen
        self.step = 0.0  # of the leapfrog; 0: the independence sampler does
        self._forget()

    def _forget(self) -> None:
        self._mode: Mode | None = None
        self._busy: Array | None = None

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

    # -- the prior -----------------------------------------------------------------------------------------

    @property
    def prior(self) -> Whitening:
        """The prior of theta in force; without data, learned scales are where the features put them."""
        if not self._centred:
            self._centred = True
            self.rescale(self.scaled.centres(self.table.features))
        return self.scaled.whitening

    def features_changed(self) -> None:
        """There are new tasks, or other features: as long as there are no data, the prior depends on them."""
        if self.scaled.learned and self.n == 0:
            self._centred = False
            self._forget()

    def rescale(self, scale: Array) -> None:
        """Other scales : (groups,), as if from the start. The mode has to be found anew, the filter anchored."""
        self.scaled.rescale(scale)
        self.table.whiten(self.scaled.whitening)

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
        # What is left of a difference of large exposures is rounding, and no exposure is that small.
        self.table.flat[cells] = np.where(left < ROUNDING * amounts, 0.0, left)
        self._changed(-len(cells), anchor=True)

    def renew(self, i: int) -> None:
        """A task has other features than before."""
        self.table.renew(i, self.prior)
        self._changed(0, anchor=True)

    def _changed(self, how_many: int, anchor: bool) -> None:
        self.n += how_many
        self._forget()
        if not self.exact and (anchor or self._due()):
            self._anchor(self._solve())

    # -- the mode ------------------------------------------------------------------------------------------

    @property
    def busy(self) -> Array:
        """The coordinates about which there are data : (b,)."""
        if self._busy is None:
            self._busy = self.table.coordinates()
        return self._busy

    def posterior(self, psi: float | None, without: int | None = None) -> Posterior:
        """The posterior of the busy coordinates at a dispersion, or with None jointly with it.

        With `without`, given the data of all tasks but that one.
        """
        x = self.table.x if len(self.busy) == self.prior.rank else self.table.x[:, self.busy]
        counts = self.table.gathered()
        if without is not None:
            counts[self.table.cells // self.table.counts.shape[1] == without] = 0.0
        return Posterior(self.family, x, self.table.offsets, counts, psi)

    def current(self) -> Mode:
        """The mode given the data, of the busy coordinates."""
        if self._mode is None:
            start = self.mean[self.busy]
            self._mode = self._solve() if self.exact else self.posterior(self.dispersion).mode(start)
            if self.exact:
                self._anchor(self._mode)
        return self._mode

    def _due(self) -> bool:
        return abs(self.n - self.fitted) > self.model.refit * self.fitted

    def _solve(self) -> Mode:
        """The mode; when due, what is learned beside theta and the sampling method are chosen anew."""
        warm, due = self.mean[self.busy], self._due()
        mode = (learn(self, warm) if due else None) or self.posterior(self.dispersion).mode(warm)
        if due:
            self.fitted = self.n
            if self.exact:
                self.step = self._step(*self._target(mode))
        return mode

    @staticmethod
    def _step(target: Posterior, proposal: sampling.Proposal) -> float:
        """The leapfrog step with which to sample; 0: the independence sampler does."""
        if sampling.suits_metropolis(target, proposal, Stream(PILOT_KEY)):
            return 0.0
        return sampling.tuned_step(target, proposal, Stream(PILOT_KEY))

    def _anchor(self, mode: Mode) -> None:
        self.mean, self.cov = self.mode_xi(mode), np.eye(self.prior.rank)
        self.cov[np.ix_(self.busy, self.busy)] = mode.root @ mode.root.T

    def mode_xi(self, mode: Mode) -> Array:
        """The mode of all of xi : (q,)."""
        xi = np.zeros(self.prior.rank)
        xi[self.busy] = mode.xi
        return xi

    def _target(self, mode: Mode, without: int | None = None) -> tuple[Posterior, sampling.Proposal]:
        if self.drawn:
            return self.posterior(None, without), laplace(mode, self.learned)
        return self.posterior(mode.psi, without), laplace(mode)

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
            point, _ = sampling.hamiltonian_draw(target, proposal, rng, self.step)
        else:
            point, _ = sampling.metropolis_draw(target, proposal, rng)
        return self._with_idle(point, rng)

    def chains(self, rng: Random, length: int, without: int | None = None) -> tuple[str, Array, float]:
        """The method, draws (CHAINS, length, q or q + 1), and the acceptance rate.

        With `without`, given the data of all tasks but that one; exact for any sampler.
        """
        if not self.exact and without is None:
            points = self._filtered(rng, sampling.CHAINS * length)
            return "filter", points.reshape(sampling.CHAINS, length, self.prior.rank), 1.0
        mode = self.current()
        if without is not None:
            mode = self.posterior(self.dispersion, without).mode(mode.xi)
        target, proposal = self._target(mode, without)
        step = self.step if without is None else self._step(target, proposal)
        if step:
            chains, rate = sampling.hamiltonian_chains(target, proposal, rng, length, step)
        else:
            chains, rate = sampling.metropolis_chains(target, proposal, rng, length)
        return "hamiltonian" if step else "metropolis", self._with_idle(chains, rng), rate

    def _with_idle(self, points: Array, rng: Random) -> Array:
        return with_idle(points, self.busy, self.prior.rank, rng)

    def _filtered(self, rng: Random, size: int) -> Array:
        z = np.asarray(rng.standard_normal((self.prior.rank, size)))
        points: Array = self.mean + z.T @ np.linalg.cholesky(self.cov).T
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

    def grow(self, places: Array, groups: Array) -> None:
        """New coefficients in these groups, at these places of the longer theta; no cell so far depends on them."""
        fresh, old = self.scaled.insert(places, groups), len(self.mean)
        self.table.add_coordinates(fresh)
        cov = np.eye(old + fresh)
        cov[:old, :old] = self.cov
        self.mean, self.cov = np.append(self.mean, np.zeros(fresh)), cov
        self._forget()

    def state(self) -> dict[str, Any]:
        if self.exact:  # what would be worked out at the next question is so now: questions change no state
            with suppress(np.linalg.LinAlgError):  # saving needs no mode: the last one stays
                self.current()
        _ = self.prior  # likewise
        return self.table.state() | {
            **self.scaled.state(),
            "filter_mean": self.mean.copy(),
            "filter_cov": self.cov.copy(),
            "log_psi": self.learned.log_psi,
            "log_psi_sd": self.learned.sd,
            "fitted": self.fitted,
            "step": self.step,
        }

    def restored(self, saved: Saved, features: TaskFeatures) -> CollapsedCoefficients:
        """What was saved, of the same model; DamagedFile, with nothing changed, where it cannot be right."""
        new = copy(self)
        new.scaled, new._centred = self.scaled.restored(saved, features.n_features), True
        whitening, rank = new.scaled.whitening, new.scaled.whitening.rank
        new.mean, new.cov = saved.array("filter_mean", (rank,)), saved.covariance("filter_cov", rank)
        new.table = CountTable(features, rank)
        new.table.restore(saved, whitening)
        log_psi, sd = saved.number("log_psi", -LIMIT, LIMIT), saved.number("log_psi_sd", 1e-9, LIMIT)
        new.learned = Dispersion(log_psi, sd)
        new.n, new.fitted = saved.integer("n_observations"), saved.integer("fitted", -WHOLE)
        new.step = saved.number("step", 0.0, 2.0)
        saved.require(new.step == 0.0 or new.step >= sampling.SHORTEST, "step", "0 or a step")
        new._forget()
        return new
