"""What a study leaves in its folder. Every file is written whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.errors import InvalidInput, MetabanditError, MissingExtra
from metabandit.lab.report import report
from metabandit.lab.result import columns
from metabandit.lab.runs import Runs

if TYPE_CHECKING:
    from metabandit.lab.result import Result
    from metabandit.lab.study import Outcome


FILES = ("curves.parquet", "summary.csv", "figure.png", "figure.pdf", "report.md")
RUNS = "runs.sqlite"


def opened(out: str | os.PathLike[str], folder: Path) -> Runs:
    """The store of finished runs in `out`, when a study can be written to its folder there.

    What cannot be written, and missing extras, are refused before anything is simulated; nothing is left behind.
    """
    if not os.fspath(out):
        raise InvalidInput("out", "", "a folder")
    _pyarrow()
    from metabandit.lab.figures import check_matplotlib

    check_matplotlib()
    new = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        _check_writable(folder)
        return Runs(Path(out) / RUNS)
    except MetabanditError:
        for path in new:
            with suppress(OSError):  # one that was not made, or is not empty
                path.rmdir()
        raise


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput("out", str(folder), f"a folder that can be written ({error.strerror})") from None
    for name in FILES:
        if (folder / name).is_dir():
            raise InvalidInput("out", str(folder / name), "a place for a file, where there is a folder now")


def write(outcome: Outcome) -> None:
    """Every file of a study."""
    from metabandit.lab.figures import study_figure

    figure = study_figure(outcome)
    fill: tuple[Callable[[Any], Any], ...] = (
        lambda file: _parquet(outcome.result, file),
        lambda file: file.write(_csv(outcome.rows()).encode()),
        lambda file: figure.savefig(file, format="png", dpi=160),
        lambda file: figure.savefig(file, format="pdf"),
        lambda file: file.write(report(outcome).encode()),
    )
    for name, filled in zip(FILES, fill, strict=True):
        try:
            _put(outcome.folder / name, filled)
        except OSError as error:  # the disk is full, or somebody took the folder away
            path = str(outcome.folder / name)
            raise InvalidInput("out", path, f"a place that can be written ({error.strerror})") from None


def _put(path: Path, fill: Callable[[Any], Any]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _parquet(result: Result, file: Any) -> None:
    pyarrow = _pyarrow()
    import pyarrow.parquet as parquet

    tables = []
    for part in result.parts:
        made = columns(part)
        n = len(made["seed"])
        arrays = {
            name: pyarrow.array(np.full(n, 0), pyarrow.int32())
            if isinstance(value, str)
            else pyarrow.array(value)
            for name, value in made.items()
        }
        for name, value in made.items():
            if isinstance(value, str):
                arrays[name] = pyarrow.DictionaryArray.from_arrays(arrays[name], pyarrow.array([value]))
        tables.append(pyarrow.table(arrays))
    whole = pyarrow.concat_tables(tables).unify_dictionaries()
    parquet.write_table(whole, file, compression="zstd")


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("studies", "lab", "pyarrow") from None
    return pyarrow
