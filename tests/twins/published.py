"""The published policies from their formulas: one decision at a time, all computed anew from all rewards so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import optimize
from scipy.special import comb

from metabandit.lab.environment import World
from metabandit.lab.environments import paper
from metabandit.laws import Beta
from metabandit.policies import Thompson
from metabandit.streams import ARMS, DRAW, Stream, keys, substreams

Array = np.ndarray[Any, Any]


@dataclass
class Play:
    """A simulation: every reward so far, and the random numbers of the decision at hand."""

    world: World
    order: str
    seed: int
    tasks: Array
    visits: Array
    arms: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def steps(self) -> Any:
        """(j, task, visit) of every decision."""
        return zip(range(len(self.tasks)), self.tasks.tolist(), self.visits.tolist(), strict=True)

    def take(self, arm: int) -> float:
        """Choose; the reward."""
        j = len(self.arms)
        self.arms.append(int(arm))
        self.rewards.append(float(self.world.rewards(self.tasks[j], self.visits[j], arm)[0]))
        return self.rewards[-1]

    @property
    def key(self) -> Array:
        return keys(self.seed, [len(self.arms)])

    def normals(self, purpose: int, width: int) -> Array:
        out: Array = Stream(int(substreams(self.key, purpose)[0])).standard_normal(width)
        return out

    def normal_arm(self, mean: Array, sd: Array) -> int:
        return int(np.argmax(mean + sd * self.normals(ARMS, len(mean))))

    def beta_arm(self, a: Array, b: Array) -> int:
        return int(Thompson().choose(Beta(a[None], b[None]), self.key, with_probability=False).arm[0])

    def counts_and_sums(self, since: int = 0) -> tuple[Array, Array]:
        """(N, K) of all rewards but those of tasks' first `since` visits."""
        counts, sums = np.zeros((2, *self.world.truth.shape))
        for j, (arm, y) in enumerate(zip(self.arms, self.rewards, strict=True)):
            if self.visits[j] >= since:
                counts[self.tasks[j], arm] += 1.0
                sums[self.tasks[j], arm] += y
        return counts, sums


@dataclass(frozen=True)
class Belief:
    """What a linear mixed model with known variances says of theta (maths a.1), at one moment."""

    phi: Array
    counts: Array
    sums: Array
    coef: float
    task: float
    noise: float

    def precision_and_mean(self) -> tuple[Array, Array]:
        d = self.phi.shape[2]
        precision, h = np.eye(d) / self.coef, np.zeros(d)
        for i, a in zip(*np.nonzero(self.counts), strict=True):
            x, n = self.phi[i, a], self.counts[i, a]
            omega = n / (self.noise + n * self.task)
            precision += omega * np.outer(x, x)
            h += omega * self.sums[i, a] / n * x
        return precision, np.linalg.solve(precision, h)

    def theta(self, z: Array) -> Array:
        precision, mean = self.precision_and_mean()
        draw: Array = mean + np.linalg.solve(np.linalg.cholesky(precision).T, z)
        return draw

    def arms(self, i: int, theta: Array) -> tuple[Array, Array]:
        """mean and sd of r_i given theta and the task's own rewards."""
        precision = 1.0 / self.task + self.counts[i] / self.noise
        mean = (self.phi[i] @ theta / self.task + self.sums[i] / self.noise) / precision
        return mean, np.sqrt(1.0 / precision)

    def posterior(self, i: int) -> tuple[Array, Array]:
        """mean and covariance of r_i given everything, theta integrated out."""
        precision, m = self.precision_and_mean()
        mean, sd = self.arms(i, m)
        b = (sd**2 / self.task)[:, None] * self.phi[i]
        return mean, np.diag(sd**2) + b @ np.linalg.solve(precision, b.T)


def belief(play: Play) -> Belief:
    problem = play.world.problem
    model = problem.model
    return Belief(problem.phi, *play.counts_and_sums(), model.coef_cov, model.task_cov, model.noise_var)


def mtts(play: Play, every: int = 2) -> None:
    held: dict[int, Belief] = {}
    for _, i, t in play.steps():
        if t < 10 or t % every == 0:
            held[i] = belief(play)
        theta = held[i].theta(play.normals(DRAW, held[i].phi.shape[2]))
        play.take(play.normal_arm(*held[i].arms(i, theta)))


def mtts_approx(play: Play) -> None:
    (frozen if play.order == "sequential" else rounds)(play)


def rounds(play: Play) -> None:
    theta = np.zeros(0)
    for j, i, _ in play.steps():
        now = belief(play)
        if j == 0 or i == play.world.problem.n_tasks - 1:
            theta = now.theta(play.normals(DRAW, now.phi.shape[2]))
        play.take(play.normal_arm(*now.arms(i, theta)))


def frozen(play: Play) -> None:
    empty = belief(play)
    prior: Array = np.zeros(0)
    for _, i, t in play.steps():
        if t == 0:
            law = empty.arms(i, empty.theta(play.normals(DRAW, empty.phi.shape[2])))
        else:
            if t == 1:
                prior = belief(play).posterior(i)[0]
            counts, sums = play.counts_and_sums(since=1)
            precision = 1.0 / empty.task + counts[i] / empty.noise
            law = ((prior / empty.task + sums[i] / empty.noise) / precision, np.sqrt(1.0 / precision))
        play.take(play.normal_arm(*law))


def linear_ts(play: Play) -> None:
    start = belief(play)
    s2 = start.noise + start.task
    d = start.phi.shape[2]
    precision, mean = np.eye(d) / start.coef, np.zeros(d)
    for _, i, _ in play.steps():
        theta = mean + np.linalg.solve(np.linalg.cholesky(precision).T, play.normals(DRAW, d))
        arm = int(np.argmax(start.phi[i] @ theta))
        x = start.phi[i, arm]
        y = play.take(arm)
        h = precision @ mean + x * (y + (y - x @ theta) / s2)
        precision = precision + np.outer(x, x) / s2
        mean = np.linalg.solve(precision, h)


def individual_ts(play: Play) -> None:
    start = belief(play)
    d = start.phi.shape[2]
    var = 1000.0 / d + 1.0 / d + start.task
    for _, i, _ in play.steps():
        counts, sums = play.counts_and_sums()
        precision = 1.0 / var + counts[i] / start.noise
        play.take(play.normal_arm(sums[i] / start.noise / precision, np.sqrt(1.0 / precision)))


def osfa(play: Play) -> None:
    start = belief(play)
    d = start.phi.shape[2]
    for _ in play.steps():
        counts, sums = (cells.sum(axis=0) for cells in play.counts_and_sums())
        precision = 1.0 / (1000.0 / d + 1.0 / d + start.task) + counts / start.noise
        mean = np.where(counts > 0, sums / start.noise / precision, 0.0)
        play.take(play.normal_arm(mean, np.where(counts > 0, np.sqrt(1.0 / precision), 0.0)))


def meta_ts(play: Play) -> None:
    start = belief(play)
    k, d = start.phi.shape[1:]
    true = paper.coefficients(play.world.seed, d, 1.0 / d)[k:]
    total = float(true @ true) + start.task
    wide, by_task = np.sqrt(total), play.order == "sequential"
    between = total if by_task else start.task
    law, drawn = np.zeros_like(play.world.truth), np.zeros(k)
    for j, i, t in play.steps():
        if not by_task or t == 0:
            counts, sums = play.counts_and_sums()
            s = between + start.noise / np.where(counts > 0, counts, 1.0)
            precision = d + ((counts > 0) / s).sum(axis=0)
            mean = (sums / np.where(counts > 0, counts, 1.0) / s).sum(axis=0) / precision
            drawn = mean + np.sqrt(1.0 / precision) * play.normals(DRAW, k)
        if j == 0:
            law[:] = drawn
        own = play.counts_and_sums()[0][i]
        arm = play.normal_arm(law[i], np.sqrt(1.0 / (1.0 / wide + own / start.noise)))
        play.take(arm)
        counts, sums = play.counts_and_sums()
        precision = 1.0 / wide + counts[i, arm] / start.noise
        law[i, arm] = (drawn[arm] / wide + sums[i, arm] / start.noise) / precision


# -- rewards of 0 and 1 ----------------------------------------------------------------------------------------------


def apart(play: Play, prior: Array, pooled: bool) -> None:
    """Beta arms with the prior shapes (2, K)."""
    for _, i, _ in play.steps():
        counts, won = play.counts_and_sums()
        mine = (won.sum(axis=0), counts.sum(axis=0)) if pooled else (won[i], counts[i])
        play.take(play.beta_arm(prior[0] + mine[0], prior[1] + mine[1] - mine[0]))


def late(play: Play, priors: list[Array], when: list[int]) -> None:
    """Beta arms; priors[m] (2, 1 | N, K) is in force after interaction when[m], and reaches a task with a reward."""
    shape = play.world.truth.shape
    used = np.zeros(shape[0], int)  # which prior the task acts on
    for j, i, _ in play.steps():
        counts, won = play.counts_and_sums()
        a, b = np.broadcast_to(priors[used[i]], (2, *shape))[:, i]
        play.take(play.beta_arm(a + won[i], b + counts[i] - won[i]))
        used[i] = sum(moment < j for moment in when) - 1


def glb_ts(play: Play) -> None:
    phi = play.world.problem.phi
    n, k, d = phi.shape
    unit = int(play.visits.max()) + 1 if play.order == "sequential" else n
    mean, precision = np.ones(d), np.eye(d)
    for j, i, _ in play.steps():
        if np.linalg.matrix_rank(precision) < d:
            play.take(int(Stream(int(substreams(play.key, ARMS)[0])).random() * k))
        else:
            theta = mean + np.linalg.solve(np.linalg.cholesky(precision).T, play.normals(DRAW, d))
            play.take(int(np.argmax(phi[i] @ theta)))
        if j and j % unit == 0 and len(set(play.rewards)) == 2:
            x, y = phi[play.tasks[: j + 1], play.arms], np.array(play.rewards)
            mean = logistic_fit(x, y)
            mu = 1.0 / (1.0 + np.exp(-x @ mean))
            precision = x.T @ (x * (mu * (1.0 - mu))[:, None])


def logistic_fit(x: Array, y: Array) -> Array:
    """The minimum of the mean log loss + 1e-4 / 2 |theta|^2."""

    def loss(theta: Array) -> float:
        eta = x @ theta
        return float((np.logaddexp(0.0, eta) - y * eta).mean() + 0.5e-4 * theta @ theta)

    def slope(theta: Array) -> Array:
        out: Array = x.T @ (1.0 / (1.0 + np.exp(-x @ theta)) - y) / len(y) + 1e-4 * theta
        return out

    start = np.zeros(x.shape[1])
    rough = optimize.minimize(loss, start, jac=slope, method="BFGS", options={"gtol": 1e-6}).x
    root: Array = optimize.root(slope, rough, tol=1e-14).x
    return root


def weights(priors: Array, won: Array, lost: Array) -> Array:
    """The published likelihoods (m,) of counts (K,) under candidates (2, m, K), by binomial coefficients."""
    a, b = priors
    out: Array = (comb(a + b, a) / comb(a + b + won + lost, a + won)).prod(axis=1)
    return out


POLICIES = {
    "mtts": mtts, "mtts-approx": mtts_approx, "linear-ts": linear_ts, "individual-ts": individual_ts, "osfa": osfa,
    "meta-ts": meta_ts,
}  # fmt: skip
