"""What two counts a cell say about theta: its mode, its exact draws, the online filter, the dispersion."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import numpy as np

from metabandit.laws import Draw
from metabandit.models import coefficient_sampler as sampling
from metabandit.models.collapsed import CollapsedModel
from metabandit.models.collapsed_learning import last_due, next_due, refit, step_of
from metabandit.models.count_table import CountTable, Saved
from metabandit.models.families import Family
from metabandit.models.features import TaskFeatures
from metabandit.models.laplace import LIMIT, UNKNOWN, Dispersion, Mode, Posterior, laplace, with_idle
from metabandit.models.scaled_prior import ScaledPrior
from metabandit.models.whitening import Whitening
from metabandit.streams import Random

Array = np.ndarray[Any, Any]


class CollapsedCoefficients:
    """theta given the counts of all cells, in whitened coordinates xi.

    `mean` : (q,) and `cov` : (q, q) are the online filter's. They are all that the sampler "filter" knows of
    xi, and where Newton's method starts otherwise. They change with the data alone: after fixed numbers of
    rewards they are put on the mode (`refit`), in between they follow every reward. All else is worked out from
    them when it is asked for, and leaves no trace: what was asked before makes no difference to what is believed.
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
        self.learned = UNKNOWN
        self.n = 0  # observations
        self.fitted = 0  # observations at the last refit
        self.step = 0.0  # of the leapfrog; 0: the independence sampler does
        self.learns_itself = True  # after fixed numbers of rewards; False: when asked
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
            self.rescale(self.scaled.centres(self.table.features))
            self._centred = True  # only now: another thread may ask at the same time
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
        cut = self._last_due(len(cells))
        try:
            if cut:
                self.table.rows(cells[:cut], self.prior)
                self.table.add(cells[:cut], amounts[:cut])
                self._changed(cut)
                refit(self)
        finally:  # Ctrl-C while something is learned: every reward is counted all the same
            self._follow(cells[cut:], amounts[cut:])

    def _last_due(self, change: int) -> int:
        return last_due(self.model.refit, self.fitted, self.n, change) if self.learns_itself else 0

    @property
    def corrects_quickly(self) -> bool:
        """Whether less of a cell changes two counts, and nothing is worked out anew before it is asked for."""
        return self.exact and not self.learns_itself

    @property
    def due(self) -> bool:
        """Whether there are as many more, or fewer, rewards since the last refit as call for another."""
        below, above = next_due(self.model.refit, self.fitted)
        return not below < self.n < above

    def refit(self) -> None:
        """Learn everything anew from the data."""
        refit(self)

    def adopt(self, learned: Dispersion, step: float, scale: Array) -> None:
        """Put in force what was learned elsewhere, and the filter on the mode."""
        self.learned, self.step, self.fitted = learned, step, self.n
        if self.scaled.learned:
            self.rescale(scale)
        self._forget()
        self.anchor(self.posterior(self.dispersion).mode(np.zeros(len(self.busy))))

    def _follow(self, cells: Array, amounts: Array) -> None:
        table = self.table
        rows = table.rows(cells, self.prior)
        self.family.follow(
            rows, cells, amounts, table.x, table.offsets, table.flat, self.dispersion, self.mean, self.cov
        )
        self._changed(len(cells))

    def take_back(self, cells: Array, amounts: Array) -> None:
        """counts -= amounts; refused, with nothing changed, if that were more than there is."""
        self.table.check_there(cells, amounts)
        cut = self._last_due(-len(cells))
        try:
            if cut:
                self._subtract(cells[:cut], amounts[:cut])
                refit(self)
        finally:
            if cut < len(cells):
                self._subtract(cells[cut:], amounts[cut:])
                self._anchor_filter()

    def _subtract(self, cells: Array, amounts: Array) -> None:
        self.table.subtract(cells, amounts)
        self._changed(-len(cells))

    def renew(self, i: int) -> None:
        """A task has other features than before."""
        self.table.renew(i, self.prior)
        self._forget()
        self._anchor_filter()

    def _changed(self, how_many: int) -> None:
        self.n += how_many
        self._mode = None
        if how_many < 0 or (self._busy is not None and len(self._busy) < self.prior.rank):
            self._busy = None  # more data leave what is busy busy

    def anchor(self, mode: Mode) -> None:
        """Put the filter on a mode."""
        self.mean, self.cov = self.mode_xi(mode), np.eye(self.prior.rank)
        self.cov[np.ix_(self.busy, self.busy)] = mode.root @ mode.root.T

    def _anchor_filter(self) -> None:
        """The filter cannot go back: where it is all there is, it starts from the mode again."""
        if not self.exact:
            self.anchor(self.current())

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
            self._mode = self.posterior(self.dispersion).mode(self.mean[self.busy])
        return self._mode

    def mode_xi(self, mode: Mode) -> Array:
        """The mode of all of xi : (q,)."""
        xi = np.zeros(self.prior.rank)
        xi[self.busy] = mode.xi
        return xi

    def target(self, mode: Mode, without: int | None = None) -> tuple[Posterior, sampling.Proposal]:
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
        target, proposal = self.target(self.current())
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
        target, proposal = self.target(mode, without)
        step = self.step if without is None else step_of(target, proposal)
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
        self.features_changed()

    def state(self) -> dict[str, Any]:
        _ = self.prior  # in force
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
        new.n, new.fitted = saved.integer("n_observations"), saved.integer("fitted")
        saved.require(not (new.learns_itself and new.due), "fitted", "in time for the rewards there are")
        new.step = saved.number("step", 0.0, 2.0)
        saved.require(new.step == 0.0 or new.step >= sampling.SHORTEST, "step", "0 or a step")
        new._forget()
        return new
