"""The commands of the service. Heavy imports happen inside them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click

STORE = click.option(
    "--store", help="An SQLite file, or postgresql://user:password@host/database.  [default: ./metabandit.db]"
)
CONFIG = click.option("--config", type=click.Path(), help="A TOML file with settings by their names.")


@click.command()
@click.option("--host", help="Where to listen; anything but loopback needs API keys.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="The port; 0: any that is free.  [default: 8080]")
@STORE
@click.option("--workers", type=int, help="Processes; more than one needs PostgreSQL.  [default: 1]")
@click.option("--require-key", is_flag=True, default=None, help="Ask for API keys on loopback too.")
@click.option("--rate", type=float, help="Requests a second from one API key; 0: no limit.  [default: 1000]")
@click.option("--body-limit", type=int, help="Bytes of a request at most.  [default: 16777216]")
@click.option(
    "--hosts",
    help="Names, with commas between, by which clients call a service without keys.  [default: localhost]",
)
@CONFIG
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Say whether these settings would do, and exit. Makes no file; also while the service runs.",
)
def serve(config: str | None, only_check: bool, **flags: Any) -> None:
    """Serve decisions over HTTP, with a page at /.

    Settings come from flags, then from environment variables (METABANDIT_PORT, METABANDIT_STORE, ...), then from a TOML
    file (--config, METABANDIT_CONFIG), then from the defaults.

    \b
    metabandit serve
    metabandit serve --store postgresql://me@db/bandits --workers 4
    METABANDIT_PORT=9000 metabandit serve --config metabandit.toml --check

    For other machines it needs API keys:

    \b
    metabandit key create --scope admin
    metabandit serve --host 0.0.0.0
    """
    from metabandit.service import serving
    from metabandit.service.settings import gathered

    names = flags.pop("hosts")
    flags["hosts"] = None if names is None else names.split(",")
    settings = gathered(flags, os.environ, config)
    if only_check:
        asyncio.run(serving.check(settings, only=True))
        workers = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
        click.echo(f"ok: {settings.host}:{settings.port}, {workers}, store {serving.told(settings)}")
        return
    serving.serve(settings)


# -- API keys --------------------------------------------------------------------------------------------------


@click.group()
def key() -> None:
    """API keys: make, list, revoke. Also while the service runs; it knows within seconds."""


@key.command("create")
@click.option("--scope", type=click.Choice(["read", "decide", "admin"]), required=True,
              help="read: look; decide: also decide, reward and put tasks; admin: everything.")  # fmt: skip
@click.option("--note", default="", help="What it is for.")
@STORE
@CONFIG
def create_key(scope: str, note: str, store: str | None, config: str | None) -> None:
    """Make a key and print it. It is shown this once: only its hash is kept.

    \b
    metabandit key create --scope decide --note "web shop"
    """
    from metabandit.service.keys import made_key

    made, text = made_key(scope, note)
    _with_store(store, config, lambda opened: opened.put_key(made), make=True)
    click.echo(text)


@key.command("list")
@STORE
@CONFIG
def list_keys(store: str | None, config: str | None) -> None:
    """Every key: id, scope, since when, whether revoked, note."""
    keys = _with_store(store, config, lambda opened: opened.keys())
    if not keys:
        click.echo("no keys yet: metabandit key create --scope admin", err=True)
    for made in keys:
        state = "active" if made.revoked is None else f"revoked {_day(made.revoked)}"
        click.echo(f"{made.id}  {made.scope:<7} {_day(made.created)}  {state:<18} {made.note}".rstrip())


@key.command("revoke")
@click.argument("id")
@STORE
@CONFIG
def revoke_key(id: str, store: str | None, config: str | None) -> None:
    """Revoke the key with this id (mb_ID_... in its text)."""
    from metabandit.errors import InvalidInput

    if not _with_store(store, config, lambda opened: opened.revoke_key(id, time.time())):
        raise InvalidInput("id", id, "the id of a key that is not revoked; metabandit key list shows them")
    click.echo(f"revoked {id}")


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _with_store(place: str | None, config: str | None, work: Callable[[Any], Any], make: bool = False) -> Any:
    """What work(store) returns; an SQLite file may be open in the service meanwhile. make : if it is not there."""
    from metabandit.errors import InvalidInput
    from metabandit.service.settings import gathered
    from metabandit.service.stores import store_of

    settings = gathered({"store": place}, os.environ, config)
    new = not (settings.several or os.path.exists(settings.store))
    if new and not make:
        raise InvalidInput("store", settings.store, "a file that is there")

    async def run() -> Any:
        store = store_of(settings.store, beside=True)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    result = asyncio.run(run())
    if new:
        click.echo(f"metabandit: made a new store, {settings.store}", err=True)
    return result


# -- audit -------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--bandit", help="Only this one.  [default: all]")
@STORE
@CONFIG
def audit(bandit: str | None, store: str | None, config: str | None) -> None:
    """Decide everything again from the log, and report every decision whose arm or probability differs.

    Exit status 1 if there is any. Also while the service runs.

    \b
    metabandit audit
    metabandit audit --store postgresql://me@db/bandits --bandit messages
    """
    from tqdm import tqdm

    from metabandit.service.audit import audit as audited

    with tqdm(desc="auditing", unit="row", leave=False, disable=not sys.stderr.isatty()) as bar:
        result = _with_store(store, config, lambda opened: audited(opened, bandit, bar.update))
    click.echo(str(result))
    sys.exit(0 if result.clean else 1)
