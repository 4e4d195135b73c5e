"""The linear mixed model: what is believed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.checking import count, expect, finite, indices
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.laws import Draw, Gaussian, Law, MultivariateNormal, Normal
from metabandit.learning.variances import SHARES, Variances, WeakPrior
from metabandit.models.base import Belief
from metabandit.models.cells import Cells
from metabandit.models.coefficients import Coefficients
from metabandit.models.effects import Effects
from metabandit.models.linear import InverseGamma, LinearMixedModel
from metabandit.models.linear_learning import FIRST_FIT, RewardScale, maximise, next_fit, weak_prior
from metabandit.models.linear_prior import CoefficientPrior, empty_tasks
from metabandit.streams import Random, normals

Array = np.ndarray[Any, Any]

SCHEDULED_STEPS = 20  # of EM at a time; the next fit goes on from there
REBUILD_EVERY = 1 << 20  # interactions; the factor's error after as many is below 1e-9 (tested)
LEAST_LEFT = (
    1e-6  # of what there was, what all corrections until it is made anew may leave: six digits of sixteen
)
CORRECTION = 1 << 8  # as many interactions: what is taken back costs more digits than it brought


class LinearBelief(Belief):
    """The exact belief of a LinearMixedModel: O(d^2 + K d) an interaction, whatever happened before.

    >>> import numpy as np, metabandit as mb
    >>> belief = mb.LinearMixedModel(coef_cov=1.0, task_cov=1.0, noise_var=1.0).belief(n_arms=1, n_features=1)
    >>> i = belief.add_task([[1.0]])
    >>> belief.observe([i, i], [0, 0], [1.0, 2.0])
    >>> round(float(belief.coef.mean[0]), 3), round(belief.log_evidence, 3)
    (0.6, -3.343)
    """

    def __init__(
        self, model: LinearMixedModel, n_arms: int, n_features: int, layout: str = "given",
        n_effects: int | None = None, groups: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(n_effects if n_effects is not None else n_arms, n_features, layout)
        self.model, self.on_vectors, self._n_arms = model, n_effects is not None, n_arms
        self.learnable = model.learnable
        self.time = 0.0
        self._stale, self._since_rebuild = False, 0
        self.next_fit, self.learned_once = (
            FIRST_FIT,
            False,
        )  # when variances are due, and whether they ever were
        self.scale = RewardScale(n_arms)
        self.prior = CoefficientPrior(model, self.features, groups)
        self.tasks = empty_tasks(model, self.features, n_arms, self.on_vectors)
        self.coefficients = Coefficients(self.prior.mean, self.prior.scaled())

    # -- set-up --------------------------------------------------------------------------------------------

    @property
    def n_arms(self) -> int:
        """K, the number of arms."""
        return self._n_arms

    @property
    def noise(self) -> Any:
        """The noise variance of every arm : (K,); or, when unknown, its present inverse-gamma law."""
        if isinstance(self.model.noise_var, InverseGamma):
            self._fresh()
            shape, scale = self._noise_law()
            return InverseGamma(float(shape), float(scale))
        return self.tasks.noise.copy()

    @property
    def task_cov(self) -> Array:
        """Cov(delta_i) : (q, q), in units of the noise variance when that has an inverse-gamma law."""
        return np.diag(self.tasks.task_var) if isinstance(self.tasks, Cells) else self.tasks.task_cov.copy()

    def task_cov_of(self, i: int) -> Array:
        """Cov(delta_i) of one task : (q, q), with the extra variance its cells may have."""
        return np.diag(self.tasks.tau2(np.array([i]))[0]) if isinstance(self.tasks, Cells) else self.task_cov

    def own_data(self, i: int) -> tuple[Array, Array]:
        """The task's own rewards by arm: how many (K,), and their mean (K,), 0 where there is none."""
        if isinstance(self.tasks, Cells):
            return self.tasks.counts[i].copy(), self.tasks.means[i].copy()
        counts, weights = self.tasks.counts[i].copy(), np.diagonal(self.tasks.g[i])
        return counts, np.divide(self.tasks.h[i], weights, out=np.zeros_like(weights), where=weights > 0)

    def prior_from_metadata(self, i: int) -> tuple[Array, Array, Array]:
        from metabandit.models.influence import influence  # it needs this class

        prior = influence(self, i).prior
        sd = np.sqrt(np.diagonal(prior.cov))
        noise = self._mean_scale() * self.tasks.noise
        worth = np.divide(noise, sd**2, out=np.full(len(sd), np.inf), where=sd > 0)
        return prior.mean, sd, worth

    def _make_room(self, n_tasks: int) -> None:
        self.tasks.make_room(n_tasks)

    # -- data ----------------------------------------------------------------------------------------------

    def observe(self, i: Any, arm: Any, reward: Any, z: Any = None) -> None:
        """Rewards of arms of tasks: scalars or equal arrays; with n_effects also vectors z :
        (q,) or (n, q).
        """
        tasks, arms, rewards = self._data(i, arm, reward)
        vectors = self._vectors(z, arms, np.ndim(i) == 0)
        done, stopped = 0, None
        while done < len(tasks):
            # Variances are learned, and the factor made anew, after given numbers of rewards, so that batching makes no
            # difference.
            room = self._rebuild_after + 1 - self._since_rebuild if self.can_rebuild else len(tasks)
            if self._on_schedule:
                room = min(room, self.next_fit - self.n_observations)
            part = slice(done, done + max(1, room))
            self._learn(tasks[part], arms[part], rewards[part], None if vectors is None else vectors[part])
            done += len(tasks[part])
            if self._on_schedule and self.n_observations >= self.next_fit:
                stopped = stopped or self._learn_if_due()
        if stopped is not None:  # Ctrl-C while variances were learned: every reward is counted all the same
            raise stopped

    def _learn_if_due(self) -> BaseException | None:
        """Empirical Bayes on schedule; what stopped it, if something did, for the caller to raise in time."""
        self.next_fit = next_fit(self.n_observations)
        try:
            self.learn_variances(tolerance=1e-3, steps=SCHEDULED_STEPS)
        except BaseException as stopped:  # nothing is hidden: observe raises it after the last reward
            return stopped
        return None

    @property
    def _on_schedule(self) -> bool:
        return self.learnable.anything and self.learns_itself

    def _vectors(self, z: Any, arms: Array, single: bool) -> Array | None:
        if self.on_vectors:
            q = self.features.n_arms
            if z is None:
                raise InvalidInput("z", None, f"the vector of every interaction, {q} numbers")
            return finite("z", np.asarray(z, float)[None] if single else z, (len(arms), q))
        if z is not None:
            raise InvalidInput("z", "<vectors>", "None: this belief was made without n_effects")
        return np.eye(self.n_arms)[arms] if isinstance(self.tasks, Effects) else None

    def _learn(self, tasks: Array, arms: Array, rewards: Array, z: Array | None) -> None:
        self._fresh()
        if isinstance(self.tasks, Cells):
            self.tasks.observe(self.coefficients, tasks, arms, rewards)
        else:
            assert z is not None
            self.tasks.observe(self.coefficients, tasks, z, arms, rewards, self.time)
        self._learned(arms, rewards)

    def learned_in_place(self, arms: Array, rewards: Array) -> None:
        """Rewards that a compiled loop has already put into the statistics and the coefficients: count them."""
        self._learned(arms, rewards)
        if self._on_schedule and self.n_observations >= self.next_fit and (stopped := self._learn_if_due()):
            raise stopped

    def _learned(self, arms: Array, rewards: Array) -> None:
        if self.learnable.anything:
            self.scale.add(arms, rewards, 1.0)
        self.n_observations += len(rewards)
        self.version += 1
        self._since_rebuild += len(rewards)
        if self._since_rebuild > self._rebuild_after and self.can_rebuild:
            self.rebuild()

    @property
    def _rebuild_after(self) -> int:
        """How many rewards the factor may take before it is made anew."""
        return max(REBUILD_EVERY, self.n_tasks * self.features.n_arms)

    def retract(self, i: Any, arm: Any, reward: Any, z: Any = None) -> None:
        """Take back rewards that were observed, exactly: as long as that can be told from rounding in O(d^2), else the
        coefficients are rebuilt from the statistics when they are wanted.
        """
        tasks, arms, rewards = self._data(i, arm, reward)
        vectors = self._vectors(z, arms, np.ndim(i) == 0)
        if not len(tasks):
            return
        if not self.can_rebuild:
            raise InvalidInput(
                "retract", "<a model with drift or discount>", "a model without: its past has faded"
            )
        left = 0.0
        if isinstance(self.tasks, Cells):
            self.tasks.check_retract(tasks, arms)
            left = self.tasks.retract(self.coefficients, tasks, arms, rewards, not self._stale)
        else:
            assert vectors is not None
            self.tasks.retract(tasks, vectors, arms, rewards)
        self.scale.add(arms, rewards, -1.0)
        self.n_observations -= len(tasks)
        self.next_fit = min(self.next_fit, self.n_observations + 2)  # what was learned from them is due again
        self.version += 1
        self._corrected(len(tasks), left)

    def _corrected(self, how_many: int, left: float) -> None:
        """The coefficients were corrected, with so much left of them; without data, and after so many times or losses
        that rounding would show, they are made anew.
        """
        self._since_rebuild += self._wear(how_many, left)
        self._stale = left <= 0.0 or not self.n_observations or self._since_rebuild > self._rebuild_after
        if self._stale:  # nothing is kept that could wear
            self._since_rebuild = 0

    def _wear(self, how_many: int, left: float) -> int:
        """As how many rewards a correction counts: what several leave of what the ones before them left multiplies."""
        share = math.log(max(left, LEAST_LEFT)) / math.log(LEAST_LEFT)
        return max(CORRECTION * how_many, math.ceil(share * self._rebuild_after))

    def _quick(self, i: int, *reward: Any) -> bool:
        """Whether the coefficients can be corrected, and are not made anew soon."""
        if (
            self._stale
            or not self.can_rebuild
            or self.n_observations < 2
            or not isinstance(self.tasks, Cells)
        ):
            return False
        wear = self._wear(1, self.tasks.left_without(self.coefficients, i, *reward))
        return self._since_rebuild + wear + 1 <= self._rebuild_after  # 1: the other reward of an amendment

    def quick_to_retract(self, i: int, arm: int, reward: float) -> bool:
        return self._quick(i, arm, reward)

    def quick_to_set_features(self, i: int) -> bool:
        if not self.tasks.counts[i].any():
            return True
        return not (isinstance(self.tasks, Cells) and len(self.tasks.extra)) and self._quick(i)

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """All rewards of one arm, to leave no rounding of what was retracted; ignored unless they are all."""
        if self.on_vectors or len(rewards) != self.tasks.counts[:, arm].sum():
            return
        self.tasks.recount(arm, tasks, rewards)
        if self.learnable.anything:
            self.scale.recount(arm, rewards)
        self._stale = True

    def set_features(self, i: int, phi: Any) -> None:
        """Other features for a task, as if it had had them from the start."""
        i, row = self.index(i), self.features.check(phi, many=False)[0]
        if not self.can_rebuild:
            raise InvalidInput("phi", "<new features>", "no new features for a task with drift or discount")
        if self.tasks.counts[i].any() and isinstance(self.tasks, Cells) and not self._stale:
            self._corrected(1, self.tasks.move(self.coefficients, i, row))
        else:
            self._stale = self._stale or bool(self.tasks.counts[i].any())
            self.features.rows[i] = row
        self.version += 1

    def _observe(
        self, tasks: Array, arms: Array, rewards: Array
    ) -> None:  # pragma: no cover - observe is its own
        raise NotImplementedError

    _retract = _observe

    def add_variance(self, tasks: Array, variance: Array) -> None:
        if not variance.any() and not (isinstance(self.tasks, Cells) and len(self.tasks.extra)):
            return
        if not isinstance(self.tasks, Cells):
            raise InvalidInput(
                "features", "<features that leave variance out>", "a diagonal task covariance with them"
            )
        self.tasks.set_extra(tasks, np.repeat(variance[:, None], self.n_arms, axis=1))
        self._stale = self._stale or bool(self.tasks.counts[tasks].any())

    def advance(self, time: float = 1.0) -> None:
        """Let time pass: task effects drift, information on theta is discounted."""
        if finite("time", time, ()) < 0.0:
            raise InvalidInput("time", time, "a number >= 0")
        self._fresh()
        self.time += float(time)
        if self.model.discount < 1.0:
            self.coefficients.discount(self.model.discount**time)
        self.version += 1

    # -- rebuilding and learning -----------------------------------------------------------------------------

    @property
    def can_rebuild(self) -> bool:  # type: ignore[override]
        """Whether the statistics hold everything: not with drift or discount, whose past fades."""
        return self.model.drift == 1.0 and self.model.discount == 1.0

    @property
    def takes_variance(self) -> bool:  # type: ignore[override]
        return isinstance(self.tasks, Cells)

    def rebuild(self) -> None:
        """Make the coefficients again from the statistics: the same belief up to rounding."""
        if not self.can_rebuild:
            raise InvalidInput(
                "rebuild", "<a model with drift or discount>", "a model without: its past has faded"
            )
        if isinstance(self.tasks, Cells):
            self.tasks.rebuild(self.coefficients)
        else:
            self.tasks.renew()
            self.coefficients.rebuild(*self.tasks.gram(self.coefficients))
        self._since_rebuild, self._stale = 0, False

    def _fresh(self) -> None:
        if self._stale:
            self.rebuild()

    @property
    def variances(self) -> Variances:
        """The variances in force."""
        task = self.tasks.task_var if isinstance(self.tasks, Cells) else self.tasks.task_cov
        return Variances(self.tasks.noise.copy(), task.copy(), self.prior.scale.copy())

    def set_variances(self, variances: Variances) -> None:
        """Other variances, as if they had been in force from the start."""
        self._stale = True  # until the rebuild below is through
        if isinstance(self.tasks, Cells):
            self.tasks.noise, self.tasks.task_var = variances.noise.copy(), variances.task.copy()
        else:
            self.tasks.set_noise(variances.noise)
            self.tasks.task_cov = variances.task.copy()
        self.prior.scale = variances.coef.copy()
        self.coefficients.set_prior(self.prior.mean, self.prior.scaled())
        self.rebuild()
        self.version += 1

    def learn_variances(
        self, prior: WeakPrior | None = None, tolerance: float = 1e-6, steps: int = 200
    ) -> list[float]:
        """Empirical Bayes now. Returns evidence + log prior after every step, which never decreases."""
        if not self.learnable.anything or self.n_observations < 2:
            return []
        before, first = self.variances, not self.learned_once
        try:
            found = maximise(self, prior or weak_prior(self), tolerance, steps, first)
            self.set_variances(found.variances)
        except BaseException:
            self.set_variances(before)
            raise
        self.learned_once = True
        return found.trace

    @property
    def learning_due(self) -> bool:
        return self.learnable.anything and self.n_observations >= self.next_fit

    def learn(self) -> None:
        self.next_fit = next_fit(self.n_observations)
        self.learn_variances(tolerance=1e-3, steps=SCHEDULED_STEPS)

    def learned_numbers(self) -> dict[str, Array]:
        if not self.learnable.anything:
            return {}
        v = self.variances
        return {"noise": v.noise, "task": v.task, "coef": v.coef}

    def adopt(self, learned: dict[str, Any]) -> None:
        now = self.learned_numbers()
        if set(learned) != set(now):
            raise InvalidInput("learned", sorted(learned), f"{sorted(now)}")
        if not now:
            return
        made = {name: finite(name, learned[name], now[name].shape) for name in now}
        if not all((np.diagonal(a) if a.ndim == 2 else a).min(initial=1.0) > 0.0 for a in made.values()):
            raise InvalidInput("learned", "<variances>", "variances > 0")
        self.set_variances(Variances(made["noise"], made["task"], made["coef"]))
        self.learned_once, self.next_fit = True, next_fit(self.n_observations)

    # -- what is believed ------------------------------------------------------------------------------------

    @property
    def coef(self) -> Gaussian:
        self._fresh()
        mean, cov = self.coefficients.posterior()
        return Gaussian(mean, self._mean_scale() * cov)

    @property
    def information(self) -> float:
        self._fresh()
        return self.coefficients.information

    @property
    def log_evidence(self) -> float:
        """The exact log marginal likelihood of every reward seen (as adaptively collected as they may be)."""
        self._fresh()
        rho2, log_s = self.coefficients.totals
        n = self.n_observations
        common = -0.5 * (n * math.log(2.0 * math.pi) + log_s + self.coefficients.information)
        prior = self.model.noise_var
        if isinstance(prior, InverseGamma):
            shape, scale = self._noise_law()
            gammas = math.lgamma(shape) - math.lgamma(prior.shape)
            return float(common + gammas + prior.shape * math.log(prior.scale) - shape * math.log(scale))
        return float(common - 0.5 * rho2)

    def _noise_law(self) -> tuple[float, float]:
        prior: InverseGamma = self.model.noise_var
        return prior.shape + 0.5 * self.n_observations, prior.scale + 0.5 * float(self.coefficients.totals[0])

    def _mean_scale(self) -> float:
        """E[sigma^2] where variances count in units of it, else 1."""
        if not isinstance(self.model.noise_var, InverseGamma):
            return 1.0
        shape, scale = self._noise_law()
        return scale / (shape - 1.0) if shape > 1.0 else math.inf

    def posterior(self, i: int, z: Any = None) -> Gaussian:
        """r_i given everything: mean (K,), cov (K, K); with n_effects of z beta_i for z : (m, q),
        or of beta_i.
        """
        i = self.index(i)
        self._fresh()
        if isinstance(self.tasks, Cells):
            mean, cov = self.tasks.posterior(self.coefficients, i)
        else:
            mean, cov = self.tasks.posterior(self.coefficients, i, self.time)
        if z is not None:
            z = finite("z", z)
            mean, cov = z @ mean, z @ cov @ z.T
        return Gaussian(mean, self._mean_scale() * cov)

    def moments(self, tasks: Array) -> tuple[Array, Array]:
        self._fresh()
        tasks = indices("tasks", tasks, self.n_tasks, "task")
        if isinstance(self.tasks, Cells):
            mean, var = self.tasks.moments(self.coefficients, tasks)
            return mean, np.sqrt(self._mean_scale() * var)
        made = [self.posterior(int(i)) for i in tasks]
        return np.array([p.mean for p in made]), np.sqrt(np.array([np.diagonal(p.cov) for p in made]))

    def draw(self, rng: Random) -> Draw:
        """One theta given everything; with unknown noise also the noise variance, in others["noise_var"]."""
        self._fresh()
        z = np.asarray(rng.standard_normal(self.n_features))[None]
        if not isinstance(self.model.noise_var, InverseGamma):
            return Draw(self.coefficients.draws(z, np.ones(1))[0])
        shape, scale = self._noise_law()
        noise_var = scale / rng.standard_gamma(shape)
        return Draw(self.coefficients.draws(z, np.array([math.sqrt(noise_var)]))[0], noise_var=noise_var)

    def draws(self, keys: Array) -> Draw:
        if isinstance(self.model.noise_var, InverseGamma):
            return super().draws(keys)
        self._fresh()
        return Draw(self.coefficients.draws(normals(keys, self.n_features), np.ones(len(keys))))

    def law(self, i: Any, draw: Array, z: Any = None) -> Law:
        """The law of r_i given theta; with n_effects: of z beta_i for z : (m, q), or of beta_i itself."""
        self._fresh()
        single, tasks = np.ndim(i) == 0, indices("i", i, self.n_tasks, "task")
        thetas = np.atleast_2d(np.asarray(draw, float))
        if thetas.shape not in ((1, self.n_features), (len(tasks), self.n_features)):
            given = f"<array of shape {np.shape(draw)}>"
            raise InvalidInput("draw", given, f"({self.n_features},), or one such row a task")
        scale = np.ones(len(thetas))
        if isinstance(draw, Draw) and "noise_var" in draw.others:
            scale = np.atleast_1d(np.sqrt(draw.others["noise_var"]))
        if isinstance(self.tasks, Cells):
            law = self.tasks.law(tasks, thetas, scale)
            return Normal(law.mean[0], law.sd[0]) if single else law
        wide = self.tasks.law(tasks, thetas, scale, self.time)
        mean, root = (wide.mean[0], wide.root[0]) if single else (wide.mean, wide.root)
        if z is not None:
            vectors = finite("z", z)
            mean, root = np.einsum("...mq,...q->...m", vectors, mean), vectors @ root
        return MultivariateNormal(mean, root)

    def sample(self, i: int, rng: Random, size: int | None = None) -> Array:
        """Exact joint draws of r_i given everything: a new theta for each."""
        i, n = self.index(i), 1 if size is None else size
        made = [self.draw(rng) for _ in range(n)]
        others = {name: np.array([d.others[name] for d in made]) for name in (made[0].others if made else {})}
        draws = Draw(np.array(made).reshape(n, self.n_features), **others)
        rows: Array = self.law(np.full(n, i), draws).sample(rng)
        return rows[0] if size is None else rows

    # -- growth ----------------------------------------------------------------------------------------------

    def add_arms(self, how_many: int = 1, phi: Any = None) -> None:
        """New arms; their noise and task variance are the mean of the others', their effects independent."""
        if self.on_vectors:
            raise InvalidInput(
                "add_arms", "<a belief with n_effects>", "arms are only named there; add them to the caller"
            )
        how_many = count("how_many", how_many)
        self._fresh()
        width = self.features.width
        old_arms = self.n_arms
        places = self.features.add_arms(how_many, phi)
        self._n_arms += how_many
        self.scale.add_arms(how_many)
        noise, variance = float(self.tasks.noise.mean()), float(np.diagonal(self.task_cov).mean())
        if isinstance(self.tasks, Cells):
            self.tasks.add_arms(how_many, variance, noise)
        else:
            self.tasks.add_arms(how_many, noise, variance)
        if len(places):  # by_arm: the new arm's coefficients are a priori like the average arm's
            self._insert(places, *(np.tile(x, how_many) for x in self.prior.of_average_arm(old_arms, width)))
        self.version += 1

    def add_columns(self, how_many: int = 1, groups: Any = None) -> None:
        """New columns, zero for every task so far: prior mean 0 and the mean prior variance of the others."""
        how_many = count("how_many", how_many)
        self._fresh()
        copies = self.n_arms if self.features.layout == "by_arm" else 1
        first = len(self.prior.scale)
        fresh = np.arange(first, first + how_many) if groups is None else np.asarray(groups, np.int64)
        if self.learned_once and self.learnable.coef and not first:  # no scale of another column to go by
            self.prior.start = SHARES["coef"] * self.scale.variance()
        mean, variance = self.prior.of_new_column()
        places = self.features.add_columns(how_many)
        n = len(places)
        self._insert(places, np.full(n, mean), np.full(n, variance), np.tile(fresh, copies))
        self.version += 1

    def _insert(self, places: Array, mean: Array, variance: Array, groups: Array) -> None:
        in_force = self.prior.insert(places, mean, variance, groups)
        self.coefficients.insert(places, mean, in_force)

    # -- saving ----------------------------------------------------------------------------------------------

    SCALARS = (
        "n_observations",
        "version",
        "time",
        "_stale",
        "_since_rebuild",
        "next_fit",
        "learned_once",
        "_n_arms",
    )

    def state(self) -> dict[str, Any]:
        rows = self.features.rows[: self.n_tasks].copy()
        own = {name: getattr(self, name) for name in self.SCALARS}
        shape = {
            "sums": np.array(self.scale.sums),
            "features.n_arms": self.features.n_arms,
            "features.n_features": self.n_features,
            "rows": rows,
        }
        parts = {f"{name}.{k}": v for name, part in self._parts().items() for k, v in part.state().items()}
        return {**own, **shape, **parts}

    def restore(self, state: dict[str, Any]) -> None:
        for name in self.SCALARS:
            setattr(self, name, type(getattr(self, name))(state[name]))
        f, shape = self.features, (int(state["features.n_arms"]), int(state["features.n_features"]))
        if min(shape[0], self._n_arms) < 1 or min(shape[1], self.n_observations) < 0:
            raise DamagedFile("belief: numbers of arms, coefficients or rewards that cannot be")
        f.n_arms, f.n_features = shape
        f.rows = expect("rows", state["rows"], (len(state["rows"]), f.row_width))
        f.n_tasks = len(f.rows)
        self.scale.sums = [tuple(row) for row in expect("sums", state["sums"], (self._n_arms, 3)).tolist()]
        for name, part in self._parts().items():
            part.restore({k[len(name) + 1 :]: v for k, v in state.items() if k.startswith(name + ".")})
        if (
            not self.coefficients.size == len(self.prior.mean) == f.n_features
            or len(self.tasks.noise) != self._n_arms
        ):
            raise DamagedFile("belief: parts that do not fit together")

    def _parts(self) -> dict[str, Any]:
        return {"prior": self.prior, "coefficients": self.coefficients, "tasks": self.tasks}
