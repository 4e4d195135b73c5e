"""Why a task gets its arms: the prior that metadata give, the task's own data, and what they make together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metabandit.bandit.tasks import Tasks
from metabandit.errors import InvalidInput, MissingExtra
from metabandit.models.base import Belief
from metabandit.models.features import TaskFeatures
from metabandit.models.influence import influence
from metabandit.models.linear_belief import LinearBelief

Array = np.ndarray[Any, Any]
Name = int | str

SHOWN = 5  # features and tasks that are listed


@dataclass(frozen=True, slots=True)
class ArmExplanation:
    """One arm of one task."""

    arm: str
    prior_mean: float
    """from the metadata and the other tasks' data, before the task's own"""
    prior_sd: float
    pulls: float
    """rewards of the task's own; for counts their exposure"""
    own_mean: float | None
    """the mean of the task's own rewards; None without any"""
    own_weight: float
    """how much of the posterior mean is the own mean: 0 all prior, 1 all own data"""
    prior_worth: float
    """how many pulls of this arm would say as much as the prior does"""
    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """What explain() returns; printing it gives a table, plot() a picture.

    >>> import metabandit as mb
    >>> bandit = mb.MultiTaskBandit(arms=["a", "b"], model=mb.LinearMixedModel(0.0, 1.0, 0.5, 1.0), seed=1)
    >>> bandit.learn_many({"task": ["u", "u", "v"], "arm": ["a", "a", "a"], "reward": [1.0, 2.0, 3.0]})
    >>> why = bandit.explain("u")
    >>> why.arms[0].pulls, why.tasks[0][0]
    (2.0, 'v')
    >>> print(why)  # doctest: +ELLIPSIS
    task 'u': 2 rewards of its own
    ...
    """

    task: Name
    arms: list[ArmExplanation]
    features: list[tuple[str, str, float]]
    """(arm, column, what it adds to the arm's prior mean beside the average task), the largest first"""
    tasks: list[tuple[Name, float, dict[str, float]]]
    """(task, sum of the absolute weights of its data, its weight in each arm's mean), the heaviest first"""
    scale: str
    """of what features add: "" that of the rewards, "logit" or "log" that of the model"""
    unit: str
    """what `pulls` counts: "pulls", or "exposure" for counts"""
    exact: bool
    """whether prior and weights are exact (linear models with one set of variances), or to first order"""

    def __str__(self) -> str:
        pulls = sum(arm.pulls for arm in self.arms)
        word = f"exposure {pulls:g}" if self.unit == "exposure" else f"{pulls:g} reward{'s' * (pulls != 1)}"
        lines = [f"task {self.task!r}: {word} of its own", ""]
        width = max(3, *(len(arm.arm) for arm in self.arms))
        lines.append(
            f"{'arm':<{width}}  prior mean (sd)    own mean ({self.unit})  own weight  prior worth  posterior (sd)"
        )
        for arm in self.arms:
            own = "-" if arm.own_mean is None else f"{arm.own_mean:.3g}"
            own = f"{own} ({arm.pulls:.4g})"
            lines.append(
                f"{arm.arm:<{width}}  {_pair(arm.prior_mean, arm.prior_sd):<17}  {own:<{len(self.unit) + 11}}  "
                f"{arm.own_weight:>10.0%}  {f'{arm.prior_worth:.3g} pulls':>11}  {_pair(arm.mean, arm.sd)}"
            )
        if self.features:
            scale = f", on the {self.scale} scale" if self.scale else ""
            lines += ["", f"what moved the prior most, beside the average task{scale}:"]
            lines += [f"  {value:+.3g}  {column} ({arm})" for arm, column, value in self.features[:SHOWN]]
        if self.tasks:
            lines += ["", "tasks whose data weigh most (absolute weights, summed over arms):"]
            lines += [f"  {weight:.3g}  {task!r}" for task, weight, _ in self.tasks[:SHOWN]]
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Prior, own data and posterior of every arm, on matplotlib axes (needs the extra "plot")."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtra("plots", "plot", "matplotlib") from error
        if ax is None:
            ax = Figure(figsize=(6.4, 0.9 + 0.62 * len(self.arms)), layout="constrained").subplots()
        y = np.arange(len(self.arms))[::-1]
        prior, sd = np.array([(a.prior_mean, a.prior_sd) for a in self.arms]).T
        mean, spread = np.array([(a.mean, a.sd) for a in self.arms]).T
        ax.errorbar(
            prior,
            y + 0.16,
            xerr=1.96 * sd,
            fmt="o",
            color="#888888",
            ms=5,
            capsize=3,
            label="prior from metadata",
        )
        ax.errorbar(
            mean, y - 0.16, xerr=1.96 * spread, fmt="s", color="#0072B2", ms=5, capsize=3, label="posterior"
        )
        own = [(a.own_mean, height) for a, height in zip(self.arms, y, strict=True) if a.own_mean is not None]
        if own:
            ax.plot(
                *zip(*own, strict=True), "D", color="#D55E00", ms=5, ls="none", label="own data", zorder=3
            )
        ax.set_yticks(y, [f"{a.arm} ({a.pulls:g})" for a in self.arms])
        ax.set_ylim(-0.6, len(self.arms) - 0.4)
        ax.set_xlabel("mean reward, with 95 % intervals")
        ax.set_title(f"task {self.task}", loc="left")
        ax.figure.legend(
            *ax.get_legend_handles_labels(),
            loc="outside lower center",
            ncols=3,
            frameon=False,
            fontsize="small",
        )
        return ax


def _pair(mean: float, sd: float) -> str:
    return f"{mean:.3g} ({sd:.2g})"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose belief is taken apart, with the names of its tasks and arms."""

    belief: Belief
    tasks: Tasks
    arms: list[str]


def explain(belief: Belief, tasks: Tasks, arms: list[str], i: int) -> Explanation:
    """Take the belief about task number i apart."""
    if not belief.can_rebuild:
        accepted = "a model without drift or discount: a past that fades cannot be told apart"
        raise InvalidInput("explain", f"<{type(belief).__name__}>", accepted)
    subject = Subject(belief, tasks, arms)
    if isinstance(belief, LinearBelief):
        return _explain_linear(subject, belief, i)
    return _explain_by_coefficients(subject, i)


def _explain_linear(subject: Subject, belief: LinearBelief, i: int) -> Explanation:
    found = influence(belief, i)
    noise = belief.tasks.noise * belief._mean_scale()
    sd = np.sqrt(np.diagonal(found.prior.cov))
    worth = np.divide(noise, sd**2, out=np.full(len(sd), np.inf), where=sd > 0)
    mean, cov = belief.posterior(i)
    arms = _arms(
        subject, i, found.prior.mean, sd, np.diagonal(found.own), worth, mean, np.sqrt(np.diagonal(cov))
    )
    weights = _heaviest(subject, found.others, found.size)
    return Explanation(
        subject.tasks.names[i], arms, _features(subject, i, found.coef.mean), weights, *_units(subject), True
    )


def _heaviest(subject: Subject, others: Array, size: Array) -> list[tuple[Name, float, dict[str, float]]]:
    return [
        (subject.tasks.names[j], float(size[j]), dict(zip(subject.arms, others[j].tolist(), strict=True)))
        for j in np.argsort(-size, kind="stable")[: 4 * SHOWN] if size[j] > 0.0
    ]  # fmt: skip


def _explain_by_coefficients(subject: Subject, i: int) -> Explanation:
    """For models without exact weights: prior and weights as the belief tells them, own data by pseudo-counts."""
    belief = subject.belief
    prior_mean, prior_sd, worth = belief.prior_from_metadata(i)
    counts, _ = belief.own_data(i)
    mean, cov = belief.posterior(i)
    own_weight = counts / np.maximum(counts + worth, 1e-300)
    arms = _arms(subject, i, prior_mean, prior_sd, own_weight, worth, mean, np.sqrt(np.diagonal(cov)))
    weights = _heaviest(subject, *belief.weights_of_others(i))
    return Explanation(
        subject.tasks.names[i],
        arms,
        _features(subject, i, belief.coef.mean),
        weights,
        *_units(subject),
        False,
    )


def _units(subject: Subject) -> tuple[str, str]:
    scale = {"binary": "logit", "count": "log"}.get(subject.belief.reward, "")
    return scale, subject.belief.own_unit


def _arms(
    subject: Subject,
    i: int,
    prior: Array,
    prior_sd: Array,
    own: Array,
    worth: Array,
    mean: Array,
    sd: Array,
) -> list[ArmExplanation]:
    counts, means = subject.belief.own_data(i)
    columns = (subject.arms, prior, prior_sd, counts, means, own, worth, mean, sd)
    return [
        ArmExplanation(
            arm, float(p), float(s), float(n), float(y) if n else None, float(w), float(k), float(m), float(e)
        )
        for arm, p, s, n, y, w, k, m, e in zip(*columns, strict=True)
    ]


def _average_phi(store: TaskFeatures) -> Array:
    """The mean of Phi over all tasks : (K, d)."""
    row = store.rows[: store.n_tasks].mean(axis=0)
    if store.layout == "given":
        given: Array = row.reshape(store.n_arms, store.n_features)
        return given
    average: Array = np.kron(np.eye(store.n_arms), row)
    return average


def _features(subject: Subject, i: int, theta: Array) -> list[tuple[str, str, float]]:
    """What each column adds to each arm's prior mean (on the model's own scale: logits, logs)."""
    names = subject.tasks.features.coefficient_names(subject.arms)
    if len(theta) != len(names):  # coefficients of the arms alone, or a Gaussian process, which has none
        return []
    store = subject.belief.features
    parts = (store.phi(i) - _average_phi(store)) * theta
    floor = 1e-9 * float(np.abs(parts).max(initial=0.0))
    found = []
    for a, j in zip(*np.nonzero(np.abs(parts) > floor), strict=True):
        column = names[j].removesuffix(f":{subject.arms[a]}")
        found.append((subject.arms[a], column, float(parts[a, j])))
    return sorted(found, key=lambda item: -abs(item[2]))
