"""Task effects with any covariance, on arms or on given vectors z; they may drift.

The general state of maths section 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.checking import expect
from metabandit.errors import DamagedFile, InvalidInput
from metabandit.kernels import Lazy
from metabandit.laws import Gaussian, MultivariateNormal
from metabandit.models.cells import conditional_posterior
from metabandit.models.coefficients import Coefficients
from metabandit.models.features import TaskFeatures, grown

_kernel: Any = Lazy("linear")
Array = np.ndarray[Any, Any]


class Effects:
    """beta_i | theta, H_i ~ N(B_i X_i theta + v_i, V_i), and the statistics G_i, b_i, y'y to make it again.

    q effects a task: the arms (z = e_a), or the slopes of any vector z. With drift (correlation `drift` < 1
    over one unit of time) the past cannot be summed up by G_i and b_i: then there is no rebuilding.
    """

    def __init__(self, features: TaskFeatures, task_cov: Array, noise: Array, drift: float = 1.0) -> None:
        self.features, self.drift = features, drift
        self.task_cov, self.noise = np.array(task_cov, float), np.array(noise, float)
        q = len(self.task_cov)
        self.b, self.v, self.big_v = np.zeros((0, q, q)), np.zeros((0, q)), np.zeros((0, q, q))
        self.g, self.h = np.zeros((0, q, q)), np.zeros((0, q))
        self.seen = np.zeros(0)  # when each task was last visited
        self.counts = np.zeros((0, len(self.noise)))  # rewards of each task and arm
        self.log_noise, self.yy = 0.0, np.zeros(len(self.noise))  # y'y / noise of each arm
        self.n_tasks = 0

    ARRAYS = ("task_cov", "noise", "yy", "b", "v", "big_v", "g", "h", "seen", "counts")

    @property
    def n_observations(self) -> int:
        return int(self.counts[: self.n_tasks].sum())

    def make_room(self, n_tasks: int) -> None:
        for name in self.ARRAYS[3:]:
            setattr(self, name, grown(getattr(self, name), n_tasks))
        new = slice(self.n_tasks, n_tasks)
        self.b[new] = np.eye(len(self.task_cov))
        self.big_v[new] = self.task_cov
        self.n_tasks = n_tasks

    # -- data ----------------------------------------------------------------------------------------------

    def observe(
        self, coefs: Coefficients, tasks: Array, z: Array, arms: Array, rewards: Array, now: float
    ) -> None:
        """Rewards y = z'beta_i + eps of variance noise[arm], all at time `now`."""
        if self.drift < 1.0:
            for i in np.unique(tasks):
                self._catch_up(i, now)
        f = self.features
        _kernel.learn_effects(
            coefs.factor, coefs.totals, coefs.root, coefs.mean, f.rows, f.step_row, f.step_column, f.width,
            self.b, self.v, self.big_v, self.noise, tasks, z, arms, rewards,
        )  # fmt: skip
        self._count(tasks, z, arms, rewards, 1.0)

    def _count(self, tasks: Array, z: Array, arms: Array, rewards: Array, sign: float) -> None:
        weight = sign / self.noise[arms]
        np.add.at(self.g, tasks, weight[:, None, None] * z[:, :, None] * z[:, None, :])
        np.add.at(self.h, tasks, (weight * rewards)[:, None] * z)
        np.add.at(self.counts, (tasks, arms), sign)
        logs, squares = np.log(self.noise)[arms], weight * rewards**2
        for log in logs.tolist():  # one after the other: portions make no difference
            self.log_noise += sign * log
        np.add.at(self.yy, arms, squares)

    def _catch_up(self, i: int, now: float) -> None:
        if now > self.seen[i]:
            c = self.drift ** (now - self.seen[i])
            _kernel.decay(self.b[i], self.v[i], self.big_v[i], self.task_cov, c)
        self.seen[i] = now

    def retract(self, tasks: Array, z: Array, arms: Array, rewards: Array) -> None:
        """The statistics without these rewards; everything has to be rebuilt afterwards."""
        taken = np.zeros_like(self.counts)
        np.add.at(taken, (tasks, arms), 1.0)
        if (taken > self.counts).any():
            i, a = np.argwhere(taken > self.counts)[0]
            raise InvalidInput(
                "reward", f"<more rewards of task {i}, arm {a} than were observed>", "observed rewards"
            )
        self._count(tasks, z, arms, rewards, -1.0)
        empty = self.counts.sum(axis=1) == 0  # nothing left: leave no rounding behind
        self.g[empty], self.h[empty] = 0.0, 0.0

    def recount(self, arm: int, tasks: Array, rewards: Array) -> None:
        """What one arm's rewards left in the statistics, from all of them; effects are on arms."""
        self.h[:, arm] = np.bincount(tasks, rewards, len(self.h)) / self.noise[arm]
        self.yy[arm] = float(rewards @ rewards) / self.noise[arm]

    # -- what is believed ------------------------------------------------------------------------------------

    def parts(self, i: int, now: float) -> tuple[Array, Array, Array]:
        """B_i, v_i, V_i as they are at time `now`."""
        b, v, big_v = self.b[i].copy(), self.v[i].copy(), self.big_v[i].copy()
        if self.drift < 1.0 and now > self.seen[i]:
            _kernel.decay(b, v, big_v, self.task_cov, self.drift ** (now - self.seen[i]))
        return b, v, big_v

    def posterior(self, coefs: Coefficients, i: int, now: float) -> Gaussian:
        return conditional_posterior(coefs, self.features.phi(i), *self.parts(i, now))

    def law(self, tasks: Array, thetas: Array, scale: Array, now: float) -> MultivariateNormal:
        """The law of beta_i given theta : (1, d) or (n, d); scale multiplies the standard deviations."""
        priors = self.features.means(tasks, thetas if len(thetas) == len(tasks) else thetas[0])
        means, roots = np.empty_like(priors), np.empty((len(tasks), *self.task_cov.shape))
        for j, i in enumerate(tasks):
            b, v, big_v = self.parts(i, now)
            means[j] = b @ priors[j] + v
            roots[j] = semidefinite_root(big_v)
        return MultivariateNormal(means, roots * np.broadcast_to(scale, len(tasks))[:, None, None])

    # -- rebuilding ------------------------------------------------------------------------------------------

    def renew(self) -> None:
        """B_i, v_i, V_i of every task from its statistics: V = R (I + R'G R)^-1 R' with Gamma = R R',
        singular or not.
        """
        n, q = self.n_tasks, len(self.task_cov)
        root = semidefinite_root(self.task_cov)
        inner = np.eye(q) + root.T @ self.g[:n] @ root
        big_v = root @ np.linalg.solve(inner, np.broadcast_to(root.T, (n, q, q)))
        self.big_v[:n] = 0.5 * (big_v + np.swapaxes(big_v, 1, 2))
        self.b[:n] = np.eye(q) - self.big_v[:n] @ self.g[:n]
        self.v[:n] = np.einsum("nqr,nr->nq", self.big_v[:n], self.h[:n])

    def gram(self, coefs: Coefficients) -> tuple[Array, float]:
        """What Coefficients.rebuild needs, from the statistics, B_i and V_i."""
        d, log_s = coefs.size, self.log_noise
        gram = np.zeros((d + 1, d + 1))
        gram[d, d] = self.yy.sum()
        for start in range(0, self.n_tasks, 4096):
            tasks = np.arange(start, min(start + 4096, self.n_tasks))
            tasks = tasks[self.counts[tasks].any(axis=1)]
            x = self.features.phis(tasks)
            g, h, b, big_v = self.g[tasks], self.h[tasks], self.b[tasks], self.big_v[tasks]
            white = coefs.whiten_rows(x.reshape(-1, d)).reshape(x.shape)
            centre = x @ coefs.mean
            a = g @ b  # A = G - G V G
            left = h - np.einsum("nqr,nr->nq", g, centre)  # what the data say beyond the prior mean
            gram[:d, :d] += np.einsum("nqd,nqe->de", white, a @ white)
            gram[:d, d] += np.einsum("nqd,nrq,nr->d", white, b, left)
            gram[d, d] += np.einsum("nq,nqr,nr->", centre, g, centre) - 2.0 * float((h * centre).sum())
            gram[d, d] -= np.einsum("nq,nqr,nr->", left, big_v, left)
            log_s += float(np.linalg.slogdet(np.eye(g.shape[1]) + self.task_cov @ g)[1].sum())
        gram[d, :d] = gram[:d, d]
        return gram, log_s

    def expectations(self, coefs: Coefficients) -> dict[str, Array]:
        """What EM needs of the task effects and of one common noise variance (maths.md a.5)."""
        q, sigma2 = len(self.task_cov), float(self.noise[0])
        theta, cov = coefs.posterior()
        squares, left = np.zeros((q, q)), float(self.yy.sum())
        pulled = np.flatnonzero(self.counts[: self.n_tasks].any(axis=1))
        for tasks in np.array_split(pulled, len(pulled) // 4096 + 1):
            x, g, h, b, big_v = (
                self.features.phis(tasks),
                self.g[tasks],
                self.h[tasks],
                self.b[tasks],
                self.big_v[tasks],
            )
            prior = x @ theta
            effect = np.einsum("nqr,nr->nq", big_v, h - np.einsum("nqr,nr->nq", g, prior))
            vgx, bx = big_v @ g @ x, b @ x
            squares += effect.T @ effect + big_v.sum(axis=0) + np.einsum("nqd,nrd->qr", vgx @ cov, vgx)
            beta = np.einsum("nqr,nr->nq", b, prior) + self.v[tasks]
            spread = big_v + (bx @ cov) @ np.swapaxes(bx, 1, 2)
            left += (
                np.einsum("nq,nqr,nr->", beta, g, beta)
                - 2.0 * float((h * beta).sum())
                + float((g * spread).sum())
            )
        noise = np.zeros(len(self.noise))
        noise[0] = sigma2 * left
        return {"task_squares": squares, "task_n": np.array(float(len(pulled))), "noise_squares": noise}

    def set_noise(self, noise: Array) -> None:
        """Another noise variance; one factor for all arms, because the statistics are weighted by it."""
        ratio = float(self.noise[0] / noise[0])
        if not np.allclose(self.noise / noise, ratio):
            raise InvalidInput("noise_var", "<another ratio between the arms>", "one factor for all arms")
        self.g *= ratio
        self.h *= ratio
        self.yy *= ratio
        self.log_noise -= self.n_observations * float(np.log(ratio))
        self.noise = np.array(noise, float)

    def add_arms(self, how_many: int, noise: float, task_var: float | None) -> None:
        """More arms; with task_var each is a new effect of that variance, independent a priori."""
        self.noise = np.append(self.noise, np.full(how_many, noise))
        self.yy = np.append(self.yy, np.zeros(how_many))
        self.counts = np.pad(self.counts, ((0, 0), (0, how_many)))
        if task_var is None:
            return
        added = np.arange(how_many) + len(self.task_cov)
        self.task_cov = np.pad(self.task_cov, (0, how_many))
        self.task_cov[added, added] = task_var
        square = ((0, 0), (0, how_many), (0, how_many))
        self.b, self.big_v, self.g = (np.pad(a, square) for a in (self.b, self.big_v, self.g))
        self.v, self.h = (np.pad(a, ((0, 0), (0, how_many))) for a in (self.v, self.h))
        self.b[:, added, added] = 1.0
        self.big_v[:, added, added] = task_var

    def state(self) -> dict[str, Any]:
        n = self.n_tasks
        held = {name: getattr(self, name) for name in self.ARRAYS}
        arrays = {name: (a if name in self.ARRAYS[:3] else a[:n]).copy() for name, a in held.items()}
        return {**arrays, "log_noise": self.log_noise}

    def restore(self, state: dict[str, Any]) -> None:
        n, q, k = self.features.n_tasks, self.features.n_arms, len(state["noise"])
        shapes = {"task_cov": (q, q), "noise": (k,), "yy": (k,), "seen": (n,), "counts": (n, k)}
        shapes |= {"v": (n, q), "h": (n, q)}
        for name in self.ARRAYS:
            least = 0.0 if name in ("noise", "counts") else None
            setattr(self, name, expect(f"tasks.{name}", state[name], shapes.get(name, (n, q, q)), least))
        if not (self.noise > 0.0).all():
            raise DamagedFile("tasks.noise: not positive")
        self.log_noise = float(state["log_noise"])
        self.n_tasks = n


def semidefinite_root(cov: Array) -> Array:
    """root : (q, q) with root root' = cov, for any positive semi-definite cov."""
    try:
        root: Array = np.linalg.cholesky(cov)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(0.5 * (cov + cov.T))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
