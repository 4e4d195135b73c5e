"""Message templates for simulated users: an application that talks to the decision service over HTTP.

Every morning each user gets one of four templates; whether they clicked is told the next morning. What is shown is
regret: how many more messages would be clicked if every user got their best template, which only a simulation knows.
Beside it the regret of uniform assignment, an A/B/C/D test that never ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import numpy as np
from tqdm import tqdm

from metabandit.client import Client, DecisionRequest, PolicySettings
from metabandit.errors import MetabanditError

Array = np.ndarray[Any, Any]

TEMPLATES = ["short", "friendly", "urgent", "detailed"]
COUNTRIES = ["NO", "PT", "SE"]
AT_A_TIME = 1_000  # users in one request


class Users:
    """Simulated users. How they like each template depends on age and country, and on themselves."""

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self.names = [f"user-{i}" for i in range(n)]
        decades, country = rng.uniform(-2.5, 3.0, n), rng.integers(0, len(COUNTRIES), n)
        self.metadata = [
            {"age": round(45 + 10 * d), "country": COUNTRIES[c]}
            for d, c in zip(decades, country, strict=True)
        ]
        by_age = np.array([-0.6, 0.0, 0.6, 0.1])  # the older, the rather urgent
        by_country = np.array([[0.0, -0.4, 0.6, 0.0], [-0.4, 1.2, -0.4, 0.0], [0.2, -0.2, -0.4, 0.8]])
        liking = -1.6 + np.outer(decades, by_age) + by_country[country] + rng.normal(0.0, 0.5, (n, 4))
        self.chance: Array = 1.0 / (1.0 + np.exp(-liking))
        """(n, 4) of a click"""

    def of(self, arms: Array) -> Array:
        """The chance of a click, if these are sent."""
        chances: Array = self.chance[np.arange(len(arms)), arms]
        return chances

    def regret(self, arms: Array) -> float:
        """How many more of 1,000 messages would be clicked if every user got their best template."""
        return float(1000.0 * (self.chance.max(axis=1) - self.of(arms)).mean())


@dataclass
class Campaign:
    """A bandit of the service, and what became of its messages."""

    client: Client
    bandit: str
    users: Users
    regrets: list[float] = field(default_factory=list)
    """by day"""
    yesterday: list[tuple[str, float]] = field(default_factory=list)
    """(decision, clicked or not) that the service has not been told yet"""

    def day(self, day: int, luck: Array) -> None:
        """Decide for everyone, and send. luck : (n_users, 4), one number for every user and template."""
        arms = np.concatenate([self._decided(day, start) for start in range(0, len(luck), AT_A_TIME)])
        clicked = luck[np.arange(len(arms)), arms] < self.users.of(arms)
        ids = [message(day, user) for user in self.users.names]
        self.yesterday = list(zip(ids, clicked.astype(float).tolist(), strict=True))
        self.regrets.append(self.users.regret(arms))

    def _decided(self, day: int, start: int) -> Array:
        """The arms of some users. Metadata are told once; they are known from then on."""
        some = slice(start, start + AT_A_TIME)
        requests = [
            DecisionRequest(id=message(day, user), task=user, metadata=known if day == 0 else None)
            for user, known in zip(self.users.names[some], self.users.metadata[some], strict=True)
        ]
        made = self.client.decide_many(self.bandit, requests)
        return np.array([TEMPLATES.index(decision.arm) for decision in made])

    def tell(self) -> None:
        """Yesterday's clicks."""
        for start in range(0, len(self.yesterday), AT_A_TIME):
            self.client.reward_many(self.bandit, self.yesterday[start : start + AT_A_TIME])
        self.yesterday = []


def message(day: int, user: str) -> str:
    """What a message is called here: its decision has this id, so that it is made once, whatever happens on the way."""
    return f"day-{day}/{user}"


def started(client: Client, users: Users, seed: int) -> Campaign:
    """A bandit of its own. With a floor, what it gains can be estimated from what it logs."""
    bandit = client.create_bandit(
        f"example-{uuid4().hex[:6]}", TEMPLATES, {"age": "number", "country": COUNTRIES}, reward="binary",
        policy=PolicySettings(floor=0.01), seed=seed,
    )  # fmt: skip
    return Campaign(client, bandit.name, users)


def play(campaign: Campaign, days: int, night: float, rng: np.random.Generator) -> list[float]:
    """Every day. Returns the regret of uniform assignment by day; Ctrl-C ends it before its time."""
    uniform: list[float] = []
    n = len(campaign.users.names)
    with tqdm(total=days, desc="sending", unit="day", leave=False, disable=not sys.stderr.isatty()) as bar:
        try:
            for day in range(days):
                campaign.tell()
                time.sleep(night)
                campaign.day(day, rng.random((n, len(TEMPLATES))))
                uniform.append(campaign.users.regret(rng.integers(0, len(TEMPLATES), n)))
                bar.update()
                bar.set_postfix(regret=f"{campaign.regrets[-1]:.0f}", uniform=f"{uniform[-1]:.0f}")
            campaign.tell()
        except KeyboardInterrupt:
            click.echo("\nstopped before the end", err=True)
    return uniform


# -- what is shown -------------------------------------------------------------------------------------------------


def table(campaign: Campaign, uniform: list[float]) -> str:
    """Regret in up to six spans of days."""
    lines = [f"regret, in clicks lost per 1,000 messages, {len(campaign.users.names)} users:\n"]
    lines.append(f"{'days':<10}{'metabandit':>12}{'uniform':>12}")
    for span in np.array_split(np.arange(len(uniform)), min(6, len(uniform))):
        own, other = np.mean(np.array(campaign.regrets)[span]), np.mean(np.array(uniform)[span])
        lines.append(f"{f'{span[0] + 1}-{span[-1] + 1}':<10}{own:>12.1f}{other:>12.1f}")
    return "\n".join(lines)


def gain(campaign: Campaign, uniform: list[float]) -> str:
    """What the service itself reports, beside the truth."""
    gains = [gain.gain for gain in campaign.client.report(campaign.bandit).gains if gain.over == "uniform"]
    if not gains:
        return "gain over uniform: too few clicks to estimate it"
    value, low, high = (1000.0 * x for x in (gains[0].value, gains[0].low, gains[0].high))
    truth = np.mean(uniform) - np.mean(campaign.regrets)
    told = f"{value:+.0f} clicks per 1,000 messages, 95 % interval {low:+.0f} to {high:+.0f}"
    return f"gain over uniform, estimated by the service from its log: {told}; in truth {truth:+.0f}"


def why(campaign: Campaign) -> str:
    """Why the first user gets their templates."""
    users = campaign.users
    lines = [f"why {users.names[0]}, {users.metadata[0]}, gets their templates (mean chance of a click):"]
    lines.append(f"{'':<10}{'by metadata':>14}{'by own clicks':>16}{'both':>8}{'in truth':>11}")
    arms = campaign.client.explain(campaign.bandit, users.names[0]).arms
    for arm, chance in zip(arms, users.chance[0], strict=True):
        own = "-" if arm.own_mean is None else f"{arm.own_mean:.2f} of {arm.pulls:.0f}"
        lines.append(f"{arm.arm:<10}{arm.prior_mean:>14.2f}{own:>16}{arm.mean:>8.2f}{chance:>11.2f}")
    return "\n".join(lines)


# -- a service of our own ------------------------------------------------------------------------------------------


@contextmanager
def own_service() -> Iterator[str]:
    """The address of a service that is started for this, in a temporary folder, and stopped."""
    with tempfile.TemporaryDirectory(prefix="metabandit-example-") as folder:
        command = [sys.executable, "-m", "metabandit", "serve", "--port", "0"]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                raise click.ClickException(f"the service did not start: {(Path(folder) / 'log').read_text()}")
            yield said.split()[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]


def wait_for(client: Client, seconds: float = 180.0) -> None:
    """The first start on a machine compiles."""
    end = time.monotonic() + seconds
    while not client.healthy():
        if time.monotonic() > end:
            raise click.ClickException(f"no service answers at {client.url}")
        time.sleep(0.1)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--users", default=400, show_default=True, type=click.IntRange(1, 100_000), help="How many users."
)
@click.option(
    "--days", default=30, show_default=True, type=click.IntRange(1), help="Messages for each of them."
)
@click.option(
    "--night",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0.0),
    help="Seconds between days, in which the service learns in the background.",
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Other users, other luck.")
@click.option("--url", help="A service that runs already.  [default: one is started, and stopped at the end]")
@click.option("--key", envvar="METABANDIT_KEY", help="Its API key, if it wants one: scope admin.")
@click.option("--stay", is_flag=True, help="Keep the service at the end, to look at its page.")
def main(
    users: int, days: int, night: float, seed: int, url: str | None, key: str | None, stay: bool
) -> None:
    """Message templates for simulated users, over HTTP: does learning pay, beside assigning uniformly?

    Regret per message should fall to a fraction, while that of uniform assignment stays where it is. In the code, see
    how ids of your own (`day-3/user-7`) make every decision safe to ask for twice, how clicks are told a day late,
    and what the service reports of itself.

    \b
    python examples/message_templates.py
    python examples/message_templates.py --users 5000 --days 10 --stay
    python examples/message_templates.py --url http://127.0.0.1:8080 --key mb_...
    """
    rng = np.random.default_rng(seed)
    with own_service() if url is None else nullcontext(url) as address, Client(address, key) as client:
        wait_for(client, 180.0 if url is None else 5.0)
        campaign = started(client, Users(users, rng), seed)
        uniform = play(campaign, days, night, rng)
        if uniform:
            click.echo(table(campaign, uniform))
        if len(uniform) < days:
            sys.exit(130)
        click.echo(f"\n{gain(campaign, uniform)}\n\n{why(campaign)}")
        if url is not None or stay:
            click.echo(f"\nsee {campaign.bandit} on {address}/")
        if url is None and stay:
            click.pause("Any key ends the service ...")


if __name__ == "__main__":
    try:
        sys.exit(main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except MetabanditError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
