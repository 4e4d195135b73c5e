"""What a study leaves in its folder. Every file is written whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metabandit.errors import InvalidInput, MissingExtra
from metabandit.lab.report import report
from metabandit.lab.result import columns

if TYPE_CHECKING:
    from metabandit.lab.result import Result
    from metabandit.lab.study import Outcome


def check_writable(folder: Path) -> None:
    """Refuse, before anything is simulated, a folder in which nothing can be written; and missing extras."""
    _pyarrow()
    from metabandit.lab.figures import check_matplotlib

    check_matplotlib()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput("out", str(folder), f"a folder that can be written ({error.strerror})") from None


def write(outcome: Outcome) -> None:
    """Every file of a study."""
    from metabandit.lab.figures import study_figure

    figure = study_figure(outcome)
    folder = outcome.folder
    _put(folder / "curves.parquet", lambda file: _parquet(outcome.result, file))
    _put(folder / "summary.csv", lambda file: file.write(_csv(outcome.rows()).encode()))
    _put(folder / "figure.png", lambda file: figure.savefig(file, format="png", dpi=160))
    _put(folder / "figure.pdf", lambda file: figure.savefig(file, format="pdf"))
    _put(folder / "report.md", lambda file: file.write(report(outcome).encode()))


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
