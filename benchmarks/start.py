"""How long it takes to start: importing, the first decision with and without a warm kernel cache.

python -m benchmarks.start
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

IMPORT = "import metabandit"
DECIDE = "import metabandit as mb; b = mb.MultiTaskBandit(['a', 'b'], seed=1); b.learn(b.decide('t'), 1.0)"


def seconds(code: str, cache: str, times: int = 3) -> float:
    """The best of several runs of a fresh interpreter."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    found = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment, stderr=subprocess.DEVNULL)
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        rows = {
            "python, nothing imported": seconds("pass", cache),
            "import metabandit": seconds(IMPORT, cache),
            "import metabandit; metabandit.MultiTaskBandit": seconds(
                IMPORT + "; metabandit.MultiTaskBandit", cache
            ),
            "first decision and reward, kernels compiled": seconds(DECIDE, cache, times=1),
            "first decision and reward, kernels cached": seconds(DECIDE, cache),
        }
    print("| a fresh interpreter | seconds |")
    print("|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value:.2f} |")


if __name__ == "__main__":
    sys.exit(main())
