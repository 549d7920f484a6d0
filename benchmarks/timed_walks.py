"""The process of one checkout that `benchmarks.throughput_against` times.

It is run by its path and imports from PYTHONPATH. Each line of standard input is a seed; the answer
is the CPU milliseconds a simulated second of the oracle's walk, and of bare physics."""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium

import envs
from benchmarks import throughput


def main() -> None:
    """Answer lines of standard input until it ends."""
    env: Any = gymnasium.make(envs.STEPPING_STONES).unwrapped
    throughput.walk(env, 0)
    print(json.dumps(str(Path(envs.__file__).resolve().parents[1])), flush=True)
    for line in sys.stdin:
        simulated, spent = throughput.walk(env, int(line))
        bare = throughput.bare_physics(env, int(line))
        print(json.dumps([1e3 * spent / simulated, bare]), flush=True)


if __name__ == "__main__":
    main()
