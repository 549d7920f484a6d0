"""Program that measures how much resident memory the life cycle of an environment adds.

    python -m tests.envs.memory NAME SETTINGS_AS_JSON RESETS_BEFORE

It prints, as JSON, by how many kB the process grew over 100 resets, over 30 environments that were
made, reset and closed, and over 20 that were dropped without closing. Some repetitions precede the
measurement, so that the allocator's pools are filled.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

import envs  # noqa: F401


def resident_kb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e3


def growth_kb(once: Callable[[int], None], before: int, times: int) -> float:
    for i in range(before):
        once(i)
    start = resident_kb()
    for i in range(times):
        once(i)
    return resident_kb() - start


def main(name: str, settings: dict[str, Any], resets_before: int) -> None:
    env = gymnasium.make(name, **settings)

    def reset(seed: int) -> None:
        env.reset(seed=seed)

    def cycle(seed: int) -> None:
        with gymnasium.make(name, **settings) as made:
            made.reset(seed=seed)

    def drop(seed: int) -> None:
        made = gymnasium.make(name, **settings)
        made.reset(seed=seed)
        made.step(made.action_space.sample())

    grown = {"resets": growth_kb(reset, resets_before, 100)}
    env.close()
    grown["cycles"] = growth_kb(cycle, 10, 30)
    gc.disable()  # the last reference must free it, not the collector, which may come late
    grown["drops"] = growth_kb(drop, 5, 20)
    print(json.dumps(grown))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
