"""Run an exported policy at a fixed rate and report its timing; NumPy and ONNX Runtime alone.

    python -m deploy.loop walker --rate 0 --steps 10000
    python -m deploy.loop walker --recorded walker/recorded.npz --log times.csv
    python -m deploy.loop sweeper --camera 0
    python -m deploy.loop sweeper --camera http://robot:8080/stream.mjpg

Observations are random, recorded, or frames of a camera read by OpenCV. For another robot, pass
`run` two functions: one that observes and one that acts.

Exit status: 0; 2 after an error; 3 if observations failed to come for more than --hold decisions.
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
from numpy.typing import ArrayLike, NDArray

from deploy.contract_file import Contract, read_contract
from deploy.frames import (
    Camera,
    Cameras,
    Drawn,
    Recorded,
    Seen,
    StreamEndError,
    takes_images,
)
from deploy.runtime import Late, Policy, UnfitError

__all__ = ["STOPPED", "Times", "main", "run"]

STOPPED = 3
"""Exit status after the watchdog's stop."""
HOLD = 10
"""Consecutive decisions without a usable observation that the watchdog allows."""

_SHARES = (50, 95, 99, 100)
_EARLY_S = 0.001  # before a decision is due, spin instead of sleeping
_RETRY_S = 0.01  # at no fixed rate: wait after a decision without a usable observation
_AHEAD_S = 0.02  # clocks of two machines may differ by this
_LIVE_AGE_S = 1.0  # limit of a camera's age if neither contract nor rate sets one
_HOURS_S = 3600.0  # an age that only another clock explains


@dataclass
class Times:
    """Durations of every decision, milliseconds."""

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
    missing: int = 0
    """Observations that did not come, or held numbers that the contract refuses."""
    stopped: str = ""
    """Why the watchdog stopped the loop; "" if it did not."""

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
        missing = f", {self.missing} missing" if self.missing else ""
        lines.append(f"{len(self.decision):,} decisions, {self.late} observations too old{missing}")
        if self.stopped:
            lines.append(f"stopped by the watchdog: {self.stopped}")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """A table of all decisions, CSV."""
        rows = zip(self.jitter, self.age, self.decision, self.cpu, strict=True)
        lines = [",".join(f"{value:.4f}" for value in row) for row in rows]
        path.write_text("\n".join(["jitter_ms,age_ms,decision_ms,cpu_ms", *lines]) + "\n")


def run(
    policy: Policy,
    observe: Callable[[], Seen | None],
    do: Callable[[NDArray[Any]], object],
    *,
    rate_hz: float,
    steps: int,
    hold: int = HOLD,
    stop: ArrayLike | None = None,
    clock: Callable[[], float] | None = None,
) -> Times:
    """Decide at a fixed rate. A decision that takes too long delays only those that it overlaps.

    A watchdog counts consecutive decisions whose observation is too old, did not come
    (`StreamEndError`, or None) or holds numbers that the contract refuses, such as NaN. The first
    `hold` of them do what the policy's `late` selects; then the stop action is executed and the
    loop ends, with the reason in `Times.stopped`. If `late` is "error", it ends at the first. The
    stop action is also executed before an error leaves the loop.

    Args:
        policy: policy, reset before the first step and whenever `observe.begins` is true.
        observe: function that returns an observation and its time stamp.
        do: function that is called with each action.
        rate_hz: decisions per second; 0: as fast as possible.
        steps: number of decisions; fewer if `observe` raises EOFError.
        hold: consecutive decisions without a usable observation before the stop.
        stop: stop action; None: zeros, or the bounds nearest to them.
        clock: clock of the time stamps, `time.time` for a wall clock as of ROS; None:
            `time.monotonic`.

    Raises:
        ValueError: one sentence, for an observation that does not match the contract, or whose
            time stamp comes from another clock.
        StaleError: for an observation that is too old if the policy's `late` is "error".
    """
    if hold < 0:
        raise ValueError(f"hold must be at least 0, got {hold}")
    hold = 0 if policy.late == "error" else hold
    stop_action = policy.stop_action(stop)
    try:
        times = _run(policy, observe, do, rate_hz, steps, hold, clock or time.monotonic)
    except (Exception, KeyboardInterrupt):
        do(stop_action)
        raise
    if times.stopped:
        do(stop_action)
    return times


def _run(
    policy: Policy,
    observe: Callable[[], Seen | None],
    do: Callable[[NDArray[Any]], object],
    rate_hz: float,
    steps: int,
    hold: int,
    clock: Callable[[], float],
) -> Times:
    times, period_s = Times(), 1 / rate_hz if rate_hz else 0.0
    policy.reset()
    due_s, begun_stamp_s, absent = time.monotonic(), clock(), 0
    for step in range(steps):
        _wait_until(due_s)
        begun_s = time.monotonic()
        reason, age_s = "", 0.0
        seen: Seen | None = None
        try:
            seen = observe()
            reason = "" if seen else "observe returned nothing"
        except StreamEndError as error:
            reason = str(error)
        except EOFError:
            break
        if step and getattr(observe, "begins", False):
            times.late += policy.late_count
            policy.reset()
        decided_s, computed_ns = time.monotonic(), time.thread_time_ns()
        late_before = policy.late_count
        if seen:
            age_s = _age_s(seen[1], clock, begun_stamp_s)
            try:
                action = policy.act(seen[0], age_s=age_s)
            except UnfitError as error:
                if policy.late == "error":
                    raise
                reason = str(error)
        if reason:
            action = policy.instead()
            times.missing += 1
        elif policy.late_count > late_before:
            reason = f"the observation is {age_s:.3g} s old"
        absent = absent + 1 if reason else 0
        if absent > hold:
            times.stopped = f"{absent} decisions without a usable observation; {reason}"
            break
        do(action)
        ended_s = time.monotonic()
        times.cpu.append(1e-6 * (time.thread_time_ns() - computed_ns))
        times.jitter.append(1e3 * (begun_s - due_s) if rate_hz else 0.0)
        times.age.append(1e3 * age_s if rate_hz else 0.0)
        times.decision.append(1e3 * (ended_s - decided_s))
        missed = math.floor((ended_s - due_s) / period_s) if rate_hz else 0
        pause_s = _RETRY_S if reason else 0.0
        due_s = due_s + max(1, missed) * period_s if rate_hz else ended_s + pause_s
    times.late += policy.late_count
    return times


def _age_s(seen_s: float, clock: Callable[[], float], begun_s: float) -> float:
    """Return the age of an observation. Raises ValueError for a time stamp of another clock."""
    now_s = clock()
    age_s = now_s - seen_s
    if not -_AHEAD_S <= age_s <= _HOURS_S + max(0.0, now_s - begun_s):
        name = f"{clock.__module__}.{getattr(clock, '__qualname__', clock)}"
        wrong = "hours older than the loop" if age_s > 0 else "from the future"
        raise ValueError(
            f"the time stamp of an observation must be of the clock {name}, which is at {now_s:.3f}"
            f" s, got {seen_s} s, {wrong if age_s == age_s else 'no number'}: pass run(..., "
            "clock=...) the clock of the stamps, such as time.time"
        )
    return max(0.0, age_s)


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
        "--camera", metavar="[INPUT=]SOURCE", action="append", help="number or address of a "
        "camera, or a video, for an image input, uint8; repeat for more inputs; the others are "
        "zeros",
    )  # fmt: skip
    parser.add_argument(
        "--reconnect", action="store_true", help="open a live camera again when its stream ends"
    )
    parser.add_argument(
        "--hold", type=int, metavar="N", default=HOLD, help="consecutive decisions without a "
        f"usable observation, after which the loop ends with exit status {STOPPED} (default "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-age", type=float, metavar="SECONDS", help="age up to which an observation is acted "
        "on (default the contract's, or else one period)",
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
    words = [_named(word, [port.name for port in ports]) for word in arguments.camera]
    images = {port.name: port for port in ports if takes_images(port)}
    names = [name or next(iter(images), "") for name, _ in words]
    unnamed = len(images) != 1 and not all(name for name, _ in words)
    if unnamed or not set(names) <= set(images) or len(set(names)) != len(names):
        raise ValueError(
            "--camera is for policies with one image, uint8 (rows, columns, 3), or for several as "
            "--camera INPUT=SOURCE, each once; depth needs a custom function for "
            f"deploy.loop.run, got {', '.join(arguments.camera)} for "
            f"{', '.join(f'{port.name} {port.dtype} {port.shape}' for port in ports)}"
        )
    others = {port.name: np.zeros(port.shape, port.dtype) for port in ports}
    cameras: list[Camera] = []
    try:
        for name, (_, source) in zip(names, words, strict=True):
            cameras.append(Camera(source, images[name], others, reconnect=arguments.reconnect))
    except BaseException:
        Cameras(cameras).close()
        raise
    return cameras[0] if len(cameras) == 1 else Cameras(cameras)


def _named(word: str, names: Sequence[str]) -> tuple[str, int | str]:
    """Name of the input, "" where none is given, and source of a camera."""
    name = next((one for one in names if word.startswith(f"{one}=")), "")
    source = word.removeprefix(f"{name}=") if name else word
    return name, int(source) if source.isdecimal() else source


def _checked(arguments: argparse.Namespace, contract: Contract) -> float:
    specified = contract.everything.get("rate_hz")
    rate = specified if arguments.rate is None else arguments.rate
    if not isinstance(rate, int | float) or not 0 <= rate <= 1e4:
        raise ValueError(f"--rate must be a number from 0 to 10000, got {rate}")
    if not 1 <= arguments.steps <= 10**8:
        raise ValueError(f"--steps must be from 1 to 100000000, got {arguments.steps}")
    if arguments.max_age is not None and not arguments.max_age > 0:
        raise ValueError(f"--max-age must be above 0, got {arguments.max_age}")
    if arguments.hold < 0:
        raise ValueError(f"--hold must be at least 0, got {arguments.hold}")
    return float(rate)


def _policy(arguments: argparse.Namespace) -> tuple[Policy, float]:
    """The policy and its rate, which limits the age of observations where nothing else does."""
    contract = read_contract(arguments.folder)
    rate_hz = _checked(arguments, contract)
    age_s = arguments.max_age or contract.max_age_s or (1 / rate_hz if rate_hz else None)
    if age_s is None and arguments.camera:
        age_s = _LIVE_AGE_S
    return Policy(arguments.folder, late=arguments.late, max_age_s=age_s), rate_hz


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; its exit status: 0, 2 after an error, or 3 after the watchdog's stop."""
    arguments = _parser().parse_args(argv)
    source: Any = None
    try:
        policy, rate_hz = _policy(arguments)
        source = _source(policy, arguments)
        times = run(
            policy, source, lambda action: None, rate_hz=rate_hz, steps=arguments.steps,
            hold=arguments.hold,
        )  # fmt: skip
        if not times.decision and not times.stopped:
            raise ValueError("there were no observations")
        print(times.report())
        if arguments.log is not None:
            times.write(arguments.log)
    except (ValueError, OSError, FloatingPointError, ImportError) as error:
        print(f"deploy.loop: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        if isinstance(source, Camera | Cameras):
            source.close()
    return STOPPED if times.stopped else 0


if __name__ == "__main__":
    raise SystemExit(main())
