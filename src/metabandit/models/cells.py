"""Task effects with a diagonal covariance: two numbers a cell (task, arm) hold all that its rewards said."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import expect
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.kernels import Lazy
from metabandit.laws import Gaussian, Normal
from metabandit.models.coefficients import Coefficients
from metabandit.models.features import TaskFeatures, grown

_kernel: Any = Lazy("linear")
_corrections: Any = Lazy("corrections")
Array = np.ndarray[Any, Any]

FEW = 4  # cells a coefficient, up to which the coefficients are made cell by cell
CHUNK = 1 << 16  # cells worked on at once when all tasks are visited, so that memory stays small


class Cells:
    """counts and means : (N, K) of the rewards, and the sum of squares within cells : (K,)."""

    def __init__(self, features: TaskFeatures, task_var: Array, noise: Array) -> None:
        self.features = features
        self.task_var, self.noise = np.array(task_var, float), np.array(noise, float)
        self.counts = np.zeros((0, features.n_arms))
        self.means = np.zeros((0, features.n_arms))
        self.within = np.zeros(features.n_arms)
        # Variance beyond task_var, a cell; empty when there is none.
        self.extra = np.zeros((0, features.n_arms))

    @property
    def n_observations(self) -> int:
        return int(self.counts[: self.features.n_tasks].sum())

    def make_room(self, n_tasks: int) -> None:
        self.counts = grown(self.counts, n_tasks)
        self.means = grown(self.means, n_tasks)
        if len(self.extra):
            self.extra = grown(self.extra, n_tasks)

    def set_extra(self, tasks: Array, variance: Array) -> None:
        """Variance of these tasks' cells beyond task_var : (n, K)."""
        if not len(self.extra):
            self.extra = np.zeros_like(self.counts)
        self.extra[tasks] = variance

    def _place(self) -> tuple[Any, ...]:
        f = self.features
        return f.rows, f.step_row, f.step_column, f.width

    # -- data ----------------------------------------------------------------------------------------------

    def observe(self, coefs: Coefficients, tasks: Array, arms: Array, rewards: Array) -> None:
        _kernel.learn_cells(
            coefs.factor, coefs.totals, coefs.root, coefs.mean, *self._place(), self.counts, self.means,
            self.within, self.task_var, self.extra, self.noise, tasks, arms, rewards,
        )  # fmt: skip

    def check_retract(self, tasks: Array, arms: Array) -> None:
        cells, taken = np.unique(tasks * self.features.n_arms + arms, return_counts=True)
        there = self.counts.reshape(-1)[cells]
        if (taken > there).any():
            i, a = divmod(int(cells[np.argmax(taken > there)]), self.features.n_arms)
            raise InvalidInput(
                "reward", f"<more rewards of task {i}, arm {a} than were observed>", "observed rewards"
            )

    def retract(self, coefs: Coefficients, tasks: Array, arms: Array, rewards: Array, well: bool) -> float:
        """The statistics without these rewards and, as long as all is well with them, the coefficients; how much is
        left of them. If nothing they have to be rebuilt.
        """
        return float(
            _corrections.forget_cells(
                coefs.factor, coefs.totals, coefs.root, coefs.mean, *self._place(), self.counts, self.means,
                self.within, self.task_var, self.extra, self.noise, tasks, arms, rewards, well,
            )
        )  # fmt: skip

    def move(self, coefs: Coefficients, i: int, row: Array) -> float:
        """Other features for a task; how much is left of the coefficients, as in retract()."""
        return float(
            _corrections.move_cells(
                coefs.factor, coefs.totals, coefs.root, coefs.mean, *self._place(), self.counts, self.means,
                self.task_var, self.extra, self.noise, i, row[None],
            )
        )  # fmt: skip

    def left_without(self, coefs: Coefficients, i: int, arm: int | None = None, reward: float = 0.0) -> float:
        """How much retract() would leave without a reward of a task, or at least move() without all of them."""
        held = coefs.factor, coefs.totals, coefs.root, coefs.mean, *self._place(), self.counts, self.means
        others = self.task_var, self.extra, self.noise, i
        if arm is None:
            return float(_corrections.left_without_task(*held, *others))
        return float(_corrections.left_without_reward(*held, self.within, *others, arm, reward))

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """The statistics of one arm from all its rewards: no trace is left of what was taken back."""
        self.counts[:, arm], self.means[:, arm], self.within[arm] = of_rewards(
            len(self.counts), tasks, rewards
        )

    # -- what is believed ------------------------------------------------------------------------------------

    def law(self, tasks: Array, thetas: Array, scale: Array) -> Normal:
        """thetas : (1, d) or (n, d), scale likewise (1,) or (n,): a factor of the standard deviations."""
        out = np.empty((2, len(tasks), self.features.n_arms))
        _kernel.cell_laws(
            *self._place(), self.counts, self.means, self.task_var, self.extra, self.noise, tasks, thetas,
            scale, out[0], out[1],
        )  # fmt: skip
        return Normal(out[0], out[1])

    def moments(self, coefs: Coefficients, tasks: Array) -> tuple[Array, Array]:
        """mean and variance (n, K) of r_i given everything."""
        out = np.empty((2, len(tasks), self.features.n_arms))
        _kernel.cell_moments(
            coefs.factor, coefs.root, coefs.posterior_mean(), *self._place(), self.counts, self.means,
            self.task_var, self.extra, self.noise, tasks, out[0], out[1],
        )  # fmt: skip
        return out[0], out[1]

    def parts(self, i: int) -> tuple[Array, Array, Array]:
        """B_i : (K, K), v_i : (K,), V_i : (K, K) of maths.md section 0."""
        tau2 = self.tau2(np.array([i]))[0]
        b = self.noise / (self.noise + self.counts[i] * tau2)
        return np.diag(b), (1.0 - b) * self.means[i], np.diag(tau2 * b)

    def posterior(self, coefs: Coefficients, i: int) -> Gaussian:
        return conditional_posterior(coefs, self.features.phi(i), *self.parts(i))

    def tau2(self, tasks: Array) -> Array:
        """The prior variance of every cell of these tasks : (n, K)."""
        base = np.broadcast_to(self.task_var, (len(tasks), self.features.n_arms))
        return base + self.extra[tasks] if len(self.extra) else base

    # -- rebuilding ------------------------------------------------------------------------------------------

    def pulled(self) -> Any:
        """The cells with data, in chunks: tasks (m,), arms (m,)."""
        tasks, arms = np.nonzero(self.counts[: self.features.n_tasks])
        for start in range(0, len(tasks), CHUNK):
            yield tasks[start : start + CHUNK], arms[start : start + CHUNK]

    def rebuild(self, coefs: Coefficients) -> None:
        """Make the coefficients again from the statistics.

        By their products, which is the quicker way; or cell by cell while there are few of them, for then the products
        lose digits: what they say of some directions can be so much more than what the prior says of the others.
        """
        n, spread = self.features.n_tasks, float((self.within / self.noise).sum())
        held = self.counts, self.means, self.task_var, self.extra, self.noise
        if np.count_nonzero(self.counts[:n]) <= FEW * coefs.size:
            coefs.reset()
            _kernel.rotate_cells(coefs.factor, coefs.totals, coefs.root, coefs.mean, *self._place(), n, *held)
            coefs.totals[0] += spread
            return
        gram = np.zeros((coefs.size + 1, coefs.size + 1))
        log_s = _kernel.cell_gram(coefs.root, coefs.mean, *self._place(), n, *held, gram)
        gram[-1, -1] += spread
        coefs.rebuild(gram, float(log_s))

    def expectations(self, coefs: Coefficients) -> dict[str, Array]:
        """What EM needs of the task effects and the noise, given the present variances (maths.md a.5)."""
        k = self.features.n_arms
        out = {"task_squares": np.zeros(k), "task_n": np.zeros(k), "noise_squares": self.within.copy()}
        theta, cov = coefs.posterior()
        for tasks, arms in self.pulled():
            n, sigma2 = self.counts[tasks, arms], self.noise[arms]
            tau2 = self.tau2(tasks)[np.arange(len(tasks)), arms]
            prior, spread = self._at(tasks, arms, theta, cov)
            rho = n * tau2 / (sigma2 + n * tau2)
            gap = self.means[tasks, arms] - prior
            var = tau2 * (1.0 - rho)
            # With extra variance in a cell, only task_var's share of the effect is learned from.
            share = self.task_var[arms] / np.where(tau2 > 0.0, tau2, 1.0)
            effect = (
                (share * rho * gap) ** 2 + share**2 * (var + rho**2 * spread) + share * (1.0 - share) * tau2
            )
            np.add.at(out["task_squares"], arms, effect)
            np.add.at(out["task_n"], arms, 1.0)
            left = n * (((1.0 - rho) * gap) ** 2 + var + (1.0 - rho) ** 2 * spread)
            np.add.at(out["noise_squares"], arms, left)
        return out

    def _at(self, tasks: Array, arms: Array, theta: Array, cov: Array) -> tuple[Array, Array]:
        """phi' theta and phi' cov phi of cells : (m,), by blocks where phi is a block."""
        f = self.features
        if f.layout == "given":
            phi = f.cells(tasks, arms)
            return phi @ theta, np.einsum("md,md->m", phi @ cov, phi)
        mean, spread, p = np.empty(len(tasks)), np.empty(len(tasks)), f.width
        for a in range(f.n_arms):
            mine = arms == a
            x, block = f.rows[tasks[mine]], slice(a * p, (a + 1) * p)
            mean[mine] = x @ theta[block]
            spread[mine] = np.einsum("mp,mp->m", x @ cov[block, block], x)
        return mean, spread

    def add_arms(self, how_many: int, task_var: float, noise: float) -> None:
        wide = np.zeros((len(self.counts), how_many))
        self.counts = np.concatenate([self.counts, wide], axis=1)
        self.means = np.concatenate([self.means, wide], axis=1)
        if len(self.extra):
            added = np.repeat(self.extra.mean(axis=1)[:, None], how_many, 1)
            self.extra = np.concatenate([self.extra, added], axis=1)
        else:
            self.extra = np.zeros((0, self.counts.shape[1]))
        self.within = np.append(self.within, np.zeros(how_many))
        self.task_var = np.append(self.task_var, np.full(how_many, task_var))
        self.noise = np.append(self.noise, np.full(how_many, noise))

    ARRAYS = ("counts", "means", "within", "task_var", "noise", "extra")

    def state(self) -> dict[str, Array]:
        n = self.features.n_tasks
        held = {name: getattr(self, name) for name in self.ARRAYS}
        return {name: (a[:n] if a.ndim == 2 else a).copy() for name, a in held.items()}

    def restore(self, state: dict[str, Array]) -> None:
        k, n = self.features.n_arms, self.features.n_tasks
        rows = n if len(state["extra"]) else 0
        shapes = {"counts": (n, k), "means": (n, k), "extra": (rows, k)}
        for name in self.ARRAYS:
            least = None if name == "means" else 0.0
            setattr(self, name, expect(f"tasks.{name}", state[name], shapes.get(name, (k,)), least))
        if not (self.noise > 0.0).all():
            raise DamagedFile("tasks.noise: not positive")


def of_rewards(size: int, tasks: Array, rewards: Array) -> tuple[Array, Array, float]:
    """Counts (size,), means (size,) and the sum of squares about these of one arm's rewards of these tasks."""
    n = np.bincount(tasks, minlength=size).astype(float)
    mean = np.bincount(tasks, rewards, size) / np.maximum(n, 1.0)
    mean += np.bincount(tasks, rewards - mean[tasks], size) / np.maximum(
        n, 1.0
    )  # what rounding left of the mean
    return n, mean, float(((rewards - mean[tasks]) ** 2).sum())


def conditional_posterior(coefs: Coefficients, x: Array, b: Array, v: Array, big_v: Array) -> Gaussian:
    """r_i | H ~ N(B X m + v, V + B X C X' B')."""
    bx = b @ x
    half = coefs.spreads(bx)
    cov = big_v + half.T @ half
    return Gaussian(bx @ coefs.posterior_mean() + v, 0.5 * (cov + cov.T))
