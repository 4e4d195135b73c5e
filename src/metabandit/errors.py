"""One tree of errors. Every message names the argument, the value given and what is accepted."""

from __future__ import annotations


class MetabanditError(Exception):
    """The root of every error this library raises on purpose.

    >>> import metabandit as mb
    >>> try:
    ...     mb.LinearMixedModel(task_cov=-1.0)
    ... except mb.MetabanditError as error:
    ...     print(error)
    task_cov: got -1.0; accepted: numbers >= 0
    """


class InvalidInput(MetabanditError, ValueError):
    """An argument was refused; nothing was changed.

    >>> import metabandit as mb
    >>> raise mb.InvalidInput("reward", float("nan"), "a finite number")
    Traceback (most recent call last):
    ...
    metabandit.errors.InvalidInput: reward: got nan; accepted: a finite number
    """

    def __init__(self, argument: str, value: object, accepted: str) -> None:
        text = value if isinstance(value, str) and value.startswith("<") else _short(value)
        super().__init__(f"{argument}: got {text}; accepted: {accepted}")
        self.argument = argument
        self.value = value
        self.accepted = accepted

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[str, object, str]]:
        return type(self), (self.argument, self.value, self.accepted)


class UnknownName(InvalidInput, KeyError):
    """A task, an arm or a decision that the bandit does not know.

    >>> import metabandit as mb
    >>> bandit = mb.MultiTaskBandit(arms=["a", "b"], seed=1)
    >>> try:
    ...     bandit.explain("nobody")
    ... except mb.UnknownName as error:
    ...     print(error.argument, error.value)
    task nobody
    """

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class ConflictingReward(InvalidInput):
    """A second, different reward for a decision that already has one.

    >>> import metabandit as mb
    >>> bandit = mb.MultiTaskBandit(arms=["a", "b"], seed=1)
    >>> decision = bandit.decide("t")
    >>> bandit.learn(decision, 1.0)
    >>> try:
    ...     bandit.learn(decision, 2.0)
    ... except mb.ConflictingReward as error:
    ...     print(error.argument)
    reward
    """


class MissingExtra(MetabanditError, ImportError):
    """A feature needs an optional dependency that is not installed.

    >>> import metabandit as mb
    >>> print(mb.MissingExtra("plots", "plot", "matplotlib"))
    plots need matplotlib: pip install 'metabandit[plot]'
    """

    def __init__(self, what: str, extra: str, package: str) -> None:
        super().__init__(f"{what} need {package}: pip install 'metabandit[{extra}]'")


class DamagedFile(MetabanditError, ValueError):
    """A file that cannot be loaded: not ours, of an unknown version, or damaged.

    >>> import metabandit as mb
    >>> issubclass(mb.DamagedFile, mb.MetabanditError)
    True
    """


def _short(value: object, limit: int = 80) -> str:
    try:
        text = repr(value)
    except Exception:  # a value so odd that it cannot even be shown (an integer of 5,000 digits, say)
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."
