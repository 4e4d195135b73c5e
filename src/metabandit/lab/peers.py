"""Other libraries as policies of studies, each told all that ours are told and set up as well as it can be.

bayesianbandits can hold the linear mixed model itself, as a regression with a column for every task effect. The others
have one regression an arm and one context a decision, so that they cannot share coefficients between arms: they get
the features of all arms as the context, and a column for every task. Columns are scaled by the prior standard
deviation of their coefficients, so that the unit prior that all of them start from is the true one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, Protocol

import numpy as np

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.lab.environment import Problem, World
from metabandit.models.linear import LinearMixedModel

Array = np.ndarray[Any, Any]

FASTER_SPARSE = 500  # cells, from which on the sparse path of bayesianbandits is the faster one


class Peer(Protocol):
    """A player, and what it believes."""

    def decide(self, task: int) -> int: ...
    def learn(self, task: int, arm: int, reward: float) -> None: ...
    def means(self) -> Array:
        """The posterior means of all r_i : (N, K), by this side's own model."""


MODULES = {
    "bayesianbandits": "bayesianbandits", "mabwiser": "mabwiser.mab", "contextualbandits": "contextualbandits.online",
    "river": "river.bandit",
}  # fmt: skip


def library(package: str) -> Any:
    """What is used of another library, or what to install."""
    try:
        return importlib.import_module(MODULES[package])
    except ImportError:
        raise MissingExtra("the peers of the laboratory", "bench", package) from None


# -- the libraries -------------------------------------------------------------------------------------------------


class BayesianBandits:
    """Thompson sampling with the linear mixed model as a regression on scaled one-hot columns, d + N K of them.

    phi : (N, K, d); coef_sd, task_sd : prior standard deviations, numbers.
    """

    def __init__(
        self, phi: Array, coef_sd: float, task_sd: float, noise_var: float = 1.0, seed: int = 0
    ) -> None:
        self.n, self.n_arms, self.d = phi.shape
        self.sparse = self.n * self.n_arms > FASTER_SPARSE
        self.regressor = library("bayesianbandits").NormalRegressor(
            alpha=1.0, beta=1.0 / noise_var, sparse=self.sparse, random_state=seed
        )
        self.scaled, self.task_sd = coef_sd * phi, task_sd

    def rows(self, task: int) -> Any:
        wide = np.zeros((self.n_arms, self.d + self.n * self.n_arms))
        wide[:, : self.d] = self.scaled[task]
        arms = np.arange(self.n_arms)
        wide[arms, self.d + task * self.n_arms + arms] = self.task_sd
        if self.sparse:
            from scipy.sparse import csc_array

            return csc_array(wide)
        return wide

    def decide(self, task: int) -> int:
        self.now = self.rows(task)
        return int(self.regressor.sample(self.now)[0].argmax())

    def learn(self, task: int, arm: int, reward: float) -> None:
        row = self.now[[arm], :] if self.sparse else self.now[[arm]]
        self.regressor.partial_fit(row, np.array([reward]))

    def means(self) -> Array:
        return np.array([self.regressor.predict(self.rows(i)) for i in range(self.n)])


class MabWiser:
    """Linear Thompson sampling, one regression an arm; context : (N, p).

    Once all arms were fitted, release 2.7.4 draws them all from the same random numbers: each arm alone has its law,
    but all move together. It explores less for that, and has less regret than with numbers of each arm's own.
    """

    def __init__(self, context: Array, n_arms: int, noise_var: float = 1.0, seed: int = 0) -> None:
        mab = library("mabwiser")
        self.context, self.n_arms = context[:, None], n_arms
        policy = mab.LearningPolicy.LinTS(alpha=float(np.sqrt(noise_var)), l2_lambda=float(noise_var))
        self.bandit = mab.MAB(list(range(n_arms)), policy, seed=seed)
        # Rows of zeros say nothing, and it has to be fitted before it is asked.
        self.bandit.fit(list(range(n_arms)), [0.0] * n_arms, np.zeros((n_arms, context.shape[1])))

    def decide(self, task: int) -> int:
        return int(self.bandit.predict(self.context[task]))

    def learn(self, task: int, arm: int, reward: float) -> None:
        self.bandit.partial_fit([arm], [reward], self.context[task])

    def means(self) -> Array:
        models = self.bandit._imp.arm_to_model
        made: Array = self.context[:, 0] @ np.array([models[a].beta for a in range(self.n_arms)]).T
        return made


class ContextualBandits:
    """Linear Thompson sampling, one regression an arm; context : (N, p), seed > 0, options : LinTS's own.

    sample_from="ci" draws every arm's value from its law, the same for one decision as drawing its coefficients;
    "coef", the default, draws those with the precision where the covariance belongs (release 0.3.30).
    """

    def __init__(
        self, context: Array, n_arms: int, noise_var: float = 1.0, seed: int = 1, **options: Any
    ) -> None:
        online = library("contextualbandits")
        self.context = context[:, None]
        self.bandit = online.LinTS(n_arms, lambda_=float(noise_var), random_state=seed, **options)
        # Rows of zeros say nothing, and it has to be fitted before it is asked.
        self.bandit.partial_fit(np.zeros((n_arms, context.shape[1])), np.arange(n_arms), np.zeros(n_arms))

    def decide(self, task: int) -> int:
        return int(self.bandit.predict(self.context[task])[0])

    def learn(self, task: int, arm: int, reward: float) -> None:
        self.bandit.partial_fit(self.context[task], np.array([arm]), np.array([reward]))

    def means(self) -> Array:
        made = self.bandit.predict(self.context[:, 0], exploit=True, output_all_scores=True)
        return np.asarray(made["scores"])


class River:
    """LinUCB with one regression an arm, as river's Thompson sampling takes no context; context : (N, p)."""

    def __init__(self, context: Array, n_arms: int, noise_var: float = 1.0, seed: int = 0) -> None:
        bandit = library("river")
        self.context, self.arms = [dict(enumerate(row.tolist())) for row in context], list(range(n_arms))
        self.bandit = bandit.LinUCBDisjoint(alpha=1.0, beta=1.0 / noise_var, seed=seed)

    def decide(self, task: int) -> int:
        return int(self.bandit.pull(self.arms, context=self.context[task]))

    def learn(self, task: int, arm: int, reward: float) -> None:
        self.bandit.update(arm, self.context[task], reward)

    def means(self) -> Array:
        models = self.bandit._bayes_lin_regs
        return np.array([[models[a].predict_one(row) for a in self.arms] for row in self.context])


# -- as policies ---------------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """The prior standard deviations and the noise variance that generated the tasks."""

    coef_sd: float
    task_sd: float
    noise_var: float


def known(problem: Problem) -> Known:
    """What the peers can use of the model that all policies are told."""
    model = problem.model
    numbers = isinstance(model, LinearMixedModel) and all(
        isinstance(value, (int, float)) for value in (model.coef_cov, model.task_cov, model.noise_var)
    )
    if not numbers or problem.contexts or np.any(model.coef_mean):
        raise InvalidInput(
            "policies", "<other libraries>", "the peers only where rewards are real, and variances numbers"
        )
    return Known(float(np.sqrt(model.coef_cov)), float(np.sqrt(model.task_cov)), float(model.noise_var))


def context_of(problem: Problem) -> Array:
    """(N, p): a constant, every feature of any arm that differs between tasks, and a column for the task itself."""
    n, scale = problem.n_tasks, known(problem)
    flat = problem.phi.reshape(n, -1)
    own = flat[:, (flat != flat[:1]).any(axis=0)]
    return np.concatenate(
        [np.full((n, 1), scale.coef_sd), scale.coef_sd * own, scale.task_sd * np.eye(n)], axis=1
    )


def _bayesianbandits(problem: Problem, seed: int) -> Peer:
    return BayesianBandits(problem.phi, *known(problem), seed=seed)


def _mabwiser(problem: Problem, seed: int) -> Peer:
    return MabWiser(context_of(problem), problem.n_arms, known(problem).noise_var, seed)


def _contextualbandits(problem: Problem, seed: int) -> Peer:
    noise_var = known(problem).noise_var
    return ContextualBandits(
        context_of(problem), problem.n_arms, noise_var, seed + 1, sample_from="ci", fit_intercept=False,
        v_sq=float(np.sqrt(noise_var)),  # with "ci" it multiplies standard deviations
    )  # fmt: skip


def _river(problem: Problem, seed: int) -> Peer:
    return River(context_of(problem), problem.n_arms, known(problem).noise_var, seed)


MAKERS: dict[str, Callable[[Problem, int], Peer]] = {
    "bayesianbandits": _bayesianbandits,
    "mabwiser": _mabwiser,
    "contextualbandits": _contextualbandits,
    "river": _river,
}


@dataclass(frozen=True)
class Library:
    """Another library as a policy, by the name of its package.

    >>> from metabandit.lab.peers import Library
    >>> sorted(Library("mabwiser").spec())
    ['peer', 'version']
    """

    name: str

    def check_installed(self) -> None:
        """Refuse where the library is not installed."""
        library(self.name)

    def player(self, world: World, order: str, seed: int) -> Peer:
        """A fresh player of one world."""
        return MAKERS[self.name](world.problem, seed)

    def spec(self) -> dict[str, Any]:
        """The policy as plain data: another release may play differently."""
        try:
            release = version(self.name)
        except PackageNotFoundError:
            release = ""
        return {"peer": self.name, "version": release}


PEERS = tuple(Library(name) for name in MAKERS)
