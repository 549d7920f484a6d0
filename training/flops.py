"""FLOPs and latency of one inference step, by component, as really executed.

    python -m training.flops configs/stepping_stones.yaml --set feature_map=positive
    python -m training.flops runs/a runs/b --device cuda --json costs.json

The policy acts on an observation of its environment while `training.op_counter` watches; its text
says what counts how much. Latency is the median over many calls of `policy.act`, from observation
to action, measured without the counter: wall time on a CPU, CUDA events on a GPU.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import nn

import policies
from training import bc_config, checkpoint, es_config
from training.bc_config import BCConfig
from training.config import ArgumentParser, UserError, exit_status, read_overrides, read_yaml
from training.episode import Policy
from training.es_config import ESConfig
from training.op_counter import OTHER, OpCounter
from training.players import EVALUATION_SEED, check_device, positive
from training.run_log import provenance

__all__ = ["COMPONENTS", "StepCost", "count", "main", "measure", "median_ms"]

COMPONENTS = ("tokens", "projection", "exponentials", "score", "controller")
"""Parts of an implicit attention policy, in the order of the computation."""


@dataclass(frozen=True)
class StepCost:
    """What one inference step costs."""

    flops: dict[str, int]
    """FLOPs by component."""
    operators: dict[str, int]
    """The same FLOPs by PyTorch operator."""
    latency_ms: float
    """Median time of `policy.act`, milliseconds."""
    parameters: int
    """Trainable and fixed numbers in `policy.parameters()`."""

    @property
    def total(self) -> int:
        """FLOPs of the whole step."""
        return sum(self.flops.values())


def count(step: Callable[[], Any]) -> OpCounter:
    """Run `step` once and count its FLOPs. Raises UncountedError at an unknown operator."""
    with torch.no_grad(), OpCounter() as counter:
        step()
    return counter


def measure(
    policy: Policy, observation: Any, device: str = "cpu", calls: int = 100, warm_up: int = 10
) -> StepCost:
    """FLOPs, median latency over `calls` calls after `warm_up`, and size of a policy."""
    counter = count(lambda: policy.act(observation))
    names = [*COMPONENTS, *sorted(set(counter.by_component) - set(COMPONENTS) - {OTHER}), OTHER]
    parameters = policy.parameters() if isinstance(policy, nn.Module) else ()
    with torch.no_grad():
        latency_ms = median_ms(lambda: policy.act(observation), device, calls, warm_up)
    return StepCost(
        flops={name: counter.by_component[name] for name in names},
        operators=dict(sorted(counter.by_operator.items())),
        latency_ms=latency_ms,
        parameters=sum(parameter.numel() for parameter in parameters),
    )


def median_ms(
    step: Callable[[], Any], device: str = "cpu", calls: int = 100, warm_up: int = 10
) -> float:
    """Median time of `step` over `calls` calls, milliseconds; on a GPU by CUDA events."""
    timed = _gpu_ms if torch.device(device).type == "cuda" else _cpu_ms
    for _ in range(warm_up):
        step()
    return statistics.median(timed(step) for _ in range(calls))


def _cpu_ms(step: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    step()
    return (time.perf_counter_ns() - start) / 1e6


def _gpu_ms(step: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


@dataclass(frozen=True)
class _Target:
    """A policy to measure: `build` gives it for an open environment."""

    name: str
    env_id: str
    env_settings: dict[str, Any]
    build: Callable[[gymnasium.Env], nn.Module]


def _target(given: str, overrides: list[str]) -> _Target:
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        config = _load_config(path, overrides)

        def build(env: gymnasium.Env) -> nn.Module:
            return policies.build(config.policy, env.observation_space, env.action_space)

        return _Target(" ".join([path.name, *overrides]), config.env_id, config.env, build)
    if overrides:
        raise UserError(f"--set changes YAML configurations; {given} is a trained policy")
    file = checkpoint.resolve(given)
    trained = checkpoint.load(file).config
    return _Target(
        path.name or given,
        trained.get("env_id", ""),
        trained.get("env", {}),
        lambda env: checkpoint.load_policy(file, env)[0],
    )


def _load_config(path: Path, overrides: list[str]) -> ESConfig | BCConfig:
    """The configuration of whichever trainer knows its keys."""
    given = read_yaml(path).keys() | read_overrides(overrides).keys()
    of_es, of_bc = ({part.name for part in fields(cls)} for cls in (ESConfig, BCConfig))
    cloning = given & (of_bc - of_es) and not given & (of_es - of_bc)
    return (bc_config if cloning else es_config).load_config(path, overrides)


def _measure_target(target: _Target, device: str, calls: int) -> StepCost:
    env = checkpoint.make_env(target.env_id, target.env_settings)
    try:
        policy: Any = target.build(env).to(device)
        observation, _ = env.reset(seed=EVALUATION_SEED)
        policy.reset()
    finally:
        env.close()
    return measure(policy, observation, device, calls)


def table(costs: dict[str, StepCost]) -> str:
    """The costs as text, one policy a line."""
    columns = [*COMPONENTS, OTHER, "total"]
    width = max(28, 0, *map(len, costs))
    lines = [
        f"{'policy':<{width}}"
        + "".join(f"{column:>14}" for column in columns)
        + f"{'ms/step':>10}{'parameters':>12}"
    ]
    for name, cost in costs.items():
        extra = sum(n for c, n in cost.flops.items() if c not in COMPONENTS)
        values = [*(cost.flops[c] for c in COMPONENTS), extra, cost.total]
        numbers = "".join(f"{value:>14,}" for value in values)
        lines.append(f"{name:<{width}}{numbers}{cost.latency_ms:>10.3f}{cost.parameters:>12,}")
    return "\n".join(lines)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="training.flops",
        description=(__doc__ or "").split("\n")[0],
        epilog="training.es --help and training.bc --help list the fields for --set",
    )
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="RUN_OR_CONFIG",
        help="run directory, checkpoint, shipped policy's name, or YAML configuration",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="field of the YAML configurations, as in --set num_features=256",
    )
    parser.add_argument("--device", default="cpu", help="PyTorch device (cpu, cuda)")
    parser.add_argument("--calls", type=positive, default=200, help="timed calls (default 200)")
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    check_device(arguments.device)
    targets = [_target(given, arguments.set) for given in arguments.targets]
    names = [target.name for target in targets]
    costs = {
        given if names.count(target.name) > 1 else target.name: _measure_target(
            target, arguments.device, arguments.calls
        )
        for given, target in zip(arguments.targets, targets, strict=True)
    }
    print(table(costs))
    if arguments.json:
        results = {
            "device": _device_name(arguments.device),
            "provenance": provenance({"set": arguments.set}),
            "policies": {
                name: asdict(cost) | {"total": cost.total} for name, cost in costs.items()
            },
        }
        try:
            Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"--json {arguments.json} cannot be written: {error.strerror}"
            ) from None
    return 0


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: exit status 0, 2 for a mistake in the arguments, 130 when interrupted."""
    return exit_status(lambda: run(argv))


if __name__ == "__main__":
    sys.exit(main())
