"""Run an exported policy at a fixed rate and report its timing; NumPy and ONNX Runtime alone.

    python -m deploy.loop walker --rate 0 --steps 10000
    python -m deploy.loop walker --recorded walker/recorded.npz --log times.csv
    python -m deploy.loop sweeper --camera 0
    python -m deploy.loop sweeper --camera http://robot:8080/stream.mjpg

Observations are random, recorded, or frames of a camera read by OpenCV. For your own robot, pass
`run` two functions: one that observes and one that acts.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from deploy.frames import Camera, Drawn, Recorded, Seen
from deploy.runtime import Late, Policy

__all__ = ["Times", "main", "run"]

_SHARES = (50, 95, 99, 100)
_EARLY_S = 0.001  # before a decision is due, spin instead of sleeping


@dataclass
class Times:
    """Of each decision, milliseconds."""

    jitter: list[float] = field(default_factory=list)
    """Delay of the start of a decision after it was due."""
    age: list[float] = field(default_factory=list)
    """Age of the observation at the start of the decision."""
    decision: list[float] = field(default_factory=list)
    """Wall-clock time of the decision."""
    cpu: list[float] = field(default_factory=list)
    """CPU time of the decision, without other work of the machine."""
    late: int = 0
    """Observations that were too old."""

    def report(self) -> str:
        """Percentiles of each quantity, one line each."""
        times = {
            "a decision": self.decision, "its computing": self.cpu,
            "start delay": self.jitter, "age of observation": self.age,
        }  # fmt: skip
        lines = []
        for name, times_ms in times.items():
            if not any(times_ms):
                continue
            found = zip(_SHARES, np.percentile(times_ms, _SHARES), strict=True)
            shown = ", ".join(f"{share} % {value:.2f}" for share, value in found)
            lines.append(f"{name}, ms: {shown}")
        lines.append(f"{len(self.decision):,} decisions, {self.late} observations too old")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """A table of all decisions, CSV."""
        rows = zip(self.jitter, self.age, self.decision, self.cpu, strict=True)
        lines = [",".join(f"{value:.4f}" for value in row) for row in rows]
        path.write_text("\n".join(["jitter_ms,age_ms,decision_ms,cpu_ms", *lines]) + "\n")


def run(
    policy: Policy,
    observe: Callable[[], Seen],
    do: Callable[[NDArray[Any]], object],
    *,
    rate_hz: float,
    steps: int,
) -> Times:
    """Decide at a fixed rate. A decision that takes too long delays only those that it overlaps.

    Args:
        policy: policy, reset before the first step and whenever `observe.begins` is true.
        observe: function that returns an observation and its time stamp.
        do: function that is called with each action.
        rate_hz: decisions per second; 0: as fast as possible.
        steps: number of decisions; fewer if `observe` raises EOFError.
    """
    times, period_s = Times(), 1 / rate_hz if rate_hz else 0.0
    policy.reset()
    due_s = time.monotonic()
    for step in range(steps):
        _wait_until(due_s)
        begun_s = time.monotonic()
        try:
            observation, seen_s = observe()
        except EOFError:
            break
        if step and getattr(observe, "begins", False):
            times.late += policy.late_count
            policy.reset()
        decided_s, computed_ns = time.monotonic(), time.thread_time_ns()
        age_s = max(0.0, decided_s - seen_s)
        do(policy.act(observation, age_s=age_s))
        ended_s = time.monotonic()
        times.cpu.append(1e-6 * (time.thread_time_ns() - computed_ns))
        times.jitter.append(1e3 * (begun_s - due_s) if rate_hz else 0.0)
        times.age.append(1e3 * age_s if rate_hz else 0.0)
        times.decision.append(1e3 * (ended_s - decided_s))
        missed = math.floor((ended_s - due_s) / period_s) if rate_hz else 0
        due_s = due_s + max(1, missed) * period_s if rate_hz else ended_s
    times.late += policy.late_count
    return times


def _wait_until(due_s: float) -> None:
    """Sleep, and spin through the last millisecond."""
    while (left_s := due_s - time.monotonic()) > 0:
        if left_s > _EARLY_S:
            time.sleep(left_s - _EARLY_S)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deploy.loop", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="what deploy.export wrote")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--recorded", metavar="FILE", type=Path, help="observations, as written by deploy.export "
        "--recorded (default: random numbers within bounds)",
    )  # fmt: skip
    source.add_argument(
        "--camera", metavar="SOURCE", help="number or address of a camera, or a video, for the one "
        "image input; other inputs are zeros",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=float, metavar="HZ", help="decisions per second; 0: as fast as possible "
        "(default the contract's)",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, default=1200, help="decisions (default %(default)s)")
    parser.add_argument(
        "--late", choices=get_args(Late), default="hold", help="what to do if an observation "
        "is too old (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--log", metavar="FILE", type=Path, help="CSV file for the times of each decision"
    )
    return parser


def _source(policy: Policy, arguments: argparse.Namespace) -> Any:
    ports = policy.contract.inputs
    if arguments.recorded is not None:
        return Recorded(arguments.recorded, ports)
    if arguments.camera is None:
        return Drawn(ports)
    pictures = [port for port in ports if port.dtype == np.uint8 and len(port.shape) == 3]
    if len(pictures) != 1:
        raise ValueError(
            f"--camera is for policies with one image, uint8 (rows, columns, 3), got "
            f"{', '.join(f'{port.name} {port.dtype} {port.shape}' for port in ports)}"
        )
    word = arguments.camera
    others = {port.name: np.zeros(port.shape, port.dtype) for port in ports}
    return Camera(int(word) if word.isdecimal() else word, pictures[0], others)


def _checked(arguments: argparse.Namespace, policy: Policy) -> float:
    specified = policy.contract.everything.get("rate_hz")
    rate = specified if arguments.rate is None else arguments.rate
    if not isinstance(rate, int | float) or not 0 <= rate <= 1e4:
        raise ValueError(f"--rate must be a number from 0 to 10000, got {rate}")
    if not 1 <= arguments.steps <= 10**8:
        raise ValueError(f"--steps must be from 1 to 100000000, got {arguments.steps}")
    return float(rate)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; its exit status: 0, or 2 and a sentence."""
    arguments = _parser().parse_args(argv)
    try:
        policy = Policy(arguments.folder, late=arguments.late)
        rate_hz = _checked(arguments, policy)
        source = _source(policy, arguments)
        times = run(policy, source, lambda action: None, rate_hz=rate_hz, steps=arguments.steps)
        if not times.decision:
            raise ValueError("there was nothing to decide on")
        print(times.report())
        if arguments.log is not None:
            times.write(arguments.log)
    except (ValueError, OSError, FloatingPointError, ImportError) as error:
        print(f"deploy.loop: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
