"""Thin commands. Heavy imports happen inside them, so that --help answers at once."""

from __future__ import annotations

import sys
from typing import Any

import click

from metabandit import __version__
from metabandit.errors import MetabanditError
from metabandit.service import commands


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


@main.group()
def study() -> None:
    """Named experiments: every figure of the paper and more, each with one command."""


@study.command("list")
def list_studies() -> None:
    """What there is, with the number of worlds each simulates."""
    from metabandit.lab import studies

    for name in studies.NAMES:
        found = studies.study(name)
        worlds = len(found.settings()) * found.seeds
        also = "" if len(found.variants) == 1 else " (stated, published)"
        click.echo(f"{name:<30} {worlds:>6,} worlds  {found.title}{also}")


@study.command("run")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--seeds", type=click.IntRange(1), help="How many worlds of every setting. Default: the study's own."
)
@click.option(
    "--jobs", type=click.IntRange(1), help="Processes side by side. Default: as many as there are cores."
)
@click.option(
    "--variant", type=click.Choice(["stated", "published"]), default="stated", show_default=True,
    help="stated: what the paper's text says; published: what its authors' code did.",
)  # fmt: skip
@click.option(
    "--out", default="results", show_default=True, type=click.Path(), help="The folder to write to."
)
def run_studies(names: tuple[str, ...], seeds: int | None, jobs: int | None, variant: str, out: str) -> None:
    """Run studies, and write OUT/NAME/{curves.parquet, summary.csv, figure.png, figure.pdf, report.md}.

    Ctrl-C keeps every world that is finished; the same command goes on from there.

    \b
    metabandit study run figure-2-gaussian --seeds 20
    metabandit study run figure-2-bernoulli --variant published --out published
    """
    import os

    from metabandit.lab import studies
    from metabandit.lab.study import run_study

    chosen = [studies.study(name) for name in names]
    for found in chosen:
        found.check(variant)
    for found in chosen:
        try:
            outcome = run_study(found, out, seeds, jobs or os.cpu_count() or 1, variant)
        except KeyboardInterrupt:
            click.echo("stopped; what is finished is kept: the same command goes on from there", err=True)
            sys.exit(130)
        click.echo(f"{found.title} ({variant})\n\n{outcome.result!r}")
        click.echo(f"\nfigure and report: {outcome.folder}/figure.png, {outcome.folder}/report.md")


for command in (commands.serve, commands.key, commands.audit):
    main.add_command(command)


def run() -> None:
    """The command as it is called: what click refuses is one line, too."""
    try:
        status = main.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = error.exit_code
    except click.ClickException as error:
        click.echo("Error: " + " ".join(error.format_message().split()), err=True)
        status = error.exit_code
    except click.Abort:
        status = 130
    sys.exit(status if isinstance(status, int) else 0)
