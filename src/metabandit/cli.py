"""Thin commands. Heavy imports happen inside them, so that --help answers at once."""

from __future__ import annotations

import sys
from typing import Any

import click

from metabandit import __version__
from metabandit.errors import MetabanditError


class Refused(click.ClickException):
    """What the library refuses is one line on stderr, not a traceback."""

    exit_code = 2


class Commands(click.Group):
    """Commands that say what was refused."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MetabanditError as error:
            raise Refused(" ".join(str(error).splitlines())) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="metabandit")
def main() -> None:
    """Thompson sampling for many related bandits.

    Every task (a user, a product, a patient) is its own bandit with metadata; a Bayesian hierarchical model learns
    across them.
    """


@main.command()
@click.option(
    "--users", default=300, show_default=True, type=click.IntRange(1, 100_000), help="How many users."
)
@click.option(
    "--rounds", default=40, show_default=True, type=click.IntRange(1, 10_000), help="Decisions for each."
)
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(0), help="The same seed, the same numbers."
)
def demo(users: int, rounds: int, seed: int) -> None:
    """Simulate message templates for many users, and show what sharing information is worth.

    \b
    metabandit demo
    metabandit demo --users 1000 --rounds 20 --seed 7
    """
    from tqdm import tqdm

    from metabandit.demo import main as run

    with tqdm(
        total=3 * rounds, desc="simulating", unit="round", leave=False, disable=not sys.stderr.isatty()
    ) as bar:
        run(users, rounds, seed, lambda text: tqdm.write(text), lambda: bar.update() and None)
