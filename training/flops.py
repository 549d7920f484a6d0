"""FLOPs and latency of one inference step, by component, as executed.

    python -m training.flops configs/stepping_stones.yaml --set feature_map=positive
    python -m training.flops runs/a runs/b --device cuda --json costs.json
    python -m training.flops configs/stepping_stones.yaml --vary \\
        feature_map=positive:256,softmax,angular_hybrid:8:8

The policy acts on an observation of its environment while an `OpCounter` watches;
`training.analysis.op_costs` says what counts how much. Latency is the median over many calls of
`policy.act`, from observation to action, measured without the counter: wall time on a CPU, CUDA
events on a GPU. Several policies are timed in turn, call by call, so that all of them see the
machine's good and bad moments.
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.flops"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

import policies
from training.algorithms.registry import load_any_config
from training.algorithms.trainer import SHORTHANDS
from training.analysis.arguments import COMPONENTS, EVALUATION_SEED, KEY_VALUES, positive
from training.collect.env_settings import requested
from training.collect.environments import make_env
from training.command.files import led_to, write_atomically
from training.command.signals import exit_status
from training.io.config import ArgumentParser, UserError, read_overrides

if TYPE_CHECKING:
    from torch import nn


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="training.flops",
        description=(__doc__ or "").split("\n")[0],
        epilog="training.es --help and training.bc --help list the fields for --set",
    )
    text = "run directory, checkpoint, shipped policy's name, or YAML configuration"
    parser.add_argument("targets", nargs="+", metavar="RUN_OR_CONFIG", help=text)
    text = (
        "Gymnasium id; default: the run's or the configuration's, which it must be: MODULE:ID of a "
        "run imports MODULE only when it is given here"
    )
    parser.add_argument("--env", metavar="ID", help=text)
    text = "field of the YAML configurations, as in --set num_features=256"
    parser.add_argument("--set", **KEY_VALUES, help=text)
    text = (
        "compare a configuration's policies with these values of a field, ratios to the first: "
        "--vary feature_map=positive:256,softmax,angular_hybrid:8:8 (NAME:m:n) or "
        "--vary policy.patch=[25,25],[20,20]"
    )
    parser.add_argument("--vary", metavar="KEY=VALUE,...", help=text)
    text = "custom policy, controller or feature map that a run names"
    parser.add_argument("--custom", "--own", **COMPONENTS, help=text)
    parser.add_argument("--device", default="cpu", help="PyTorch device (cpu, cuda)")
    parser.add_argument("--calls", type=positive, default=200, help="timed calls (default 200)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    return parser


@dataclass(frozen=True)
class _Target:
    """A policy to measure; `build` returns it for an open environment."""

    name: str
    env_id: str
    env_settings: dict[str, Any]
    build: Callable[[gymnasium.Env], "nn.Module"]


def _targets_of(
    given: str, env_id: str | None, overrides: list[str], variants: Mapping[str, list[str]],
    own: list[str],
) -> list[_Target]:  # fmt: skip
    """The policies for a command-line argument: one, or one per variant."""
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        if not variants:
            variants = {" ".join([path.name, *overrides]): overrides}
        found = [_configured(label, path, settings) for label, settings in variants.items()]
        for target in found:
            if env_id not in (None, target.env_id):
                raise UserError(f"--env {env_id}: {given} is for {target.env_id}")
        return found
    for option, used in (("--set", overrides), ("--vary", variants)):
        if used:
            raise UserError(f"{option} changes YAML configurations; {given} is a trained policy")
    from training.analysis.agents import trained_in
    from training.io import checkpoint

    file = checkpoint.resolve(given)
    trained = checkpoint.load(file).config
    return [
        _Target(
            path.name or given,
            trained_in(given, trained.get("env_id", ""), env_id),
            requested(trained.get("env", {}), own),
            lambda env: checkpoint.load_policy(file, env)[0],
        )
    ]


def _configured(name: str, path: Path, overrides: list[str]) -> _Target:
    from training.io import checkpoint

    config = load_any_config(path, overrides)

    def build(env: gymnasium.Env) -> "nn.Module":
        with checkpoint.fitting(f"{name}: its policy does not fit here"):
            return policies.build_for(config.policy, env, trusted=False)

    return _Target(name, config.env_id, config.env, build)


def _variants(given: str | None, overrides: list[str]) -> dict[str, list[str]]:
    """The overrides of each variant by label: --vary KEY=VALUE,... and those of --set.

    A feature map may be NAME:m:n, whose m and n replace those of --set.
    """
    if given is None:
        return {}
    key, _, text = given.partition("=")
    try:
        values, reason = read_overrides([f"values=[{text}]"])["values"], ""
    except UserError as error:
        values, reason = [], f" ({str(error).removeprefix('--set values')})"
    if not key or not values:
        raise UserError(f"--vary takes KEY=VALUE,VALUE,..., got {given!r}{reason}")
    by_label: dict[str, list[str]] = {}
    for value in values:
        label = value if isinstance(value, str) else json.dumps(value)
        if label in by_label:
            raise UserError(f"--vary {key}: {label} is given twice")
        own = _overrides(key, label)
        settings = [override.partition("=")[0] for override in own]
        kept = [o for o in overrides if not _sets(o, settings[1:])]
        twice = next((o for o in overrides if _sets(o, settings[:1])), None)
        if twice is not None:
            raise UserError(
                f"--vary {key} and --set {twice} are the same setting; give one of them"
            )
        by_label[label] = kept + own
    return by_label


def _sets(override: str, keys: list[str]) -> bool:
    """Whether a `key=value` is of one of these keys, shorthand or not."""
    given = override.partition("=")[0].strip()
    return SHORTHANDS.get(given, given) in [SHORTHANDS.get(key, key) for key in keys]


def _overrides(key: str, label: str) -> list[str]:
    section, dot, field = key.rpartition(".")
    if field != "feature_map":
        return [f"{key}={label}"]
    parts = label.split(":")
    if len(parts) > 3:
        raise UserError(f"--vary {key}: a feature map is NAME, NAME:m or NAME:m:n, got {label!r}")
    fields = (field, "num_features", "num_lambda_features")
    return [f"{section}{dot}{name}={part}" for name, part in zip(fields, parts, strict=False)]


def _prepare(target: _Target, device: str) -> tuple[Any, Any]:
    """The policy, and an observation of its environment."""
    with make_env(target.env_id, target.env_settings) as env:
        policy: Any = target.build(env).to(device)
        observation, _ = env.reset(seed=EVALUATION_SEED)
        policy.reset()
    return policy, observation


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    import torch  # and what loads it: --help is quick without

    from training.analysis.agents import check_device, device_name
    from training.analysis.step_cost import comparison, measure_all, table
    from training.io.run_log import provenance

    torch.set_num_threads(1)
    check_device(arguments.device)
    by_label = _variants(arguments.vary, arguments.set)
    targets = [
        (given, target)
        for given in arguments.targets
        for target in _targets_of(given, arguments.env, arguments.set, by_label, arguments.custom)
    ]
    names = [target.name for _, target in targets]
    subjects = {}
    for given, target in targets:
        name = target.name
        if names.count(name) > 1:
            name = f"{given} {name}" if by_label else given
        subjects[name] = _prepare(target, arguments.device)
    costs = measure_all(subjects, arguments.device, arguments.calls)
    print(table(costs))
    if by_label:
        print(f"\n{comparison(costs)}")
    if arguments.json:
        results = {
            "device": device_name(arguments.device),
            "provenance": provenance({"set": arguments.set, "vary": arguments.vary}),
            "policies": {
                name: asdict(cost)
                | {"attention_flops": cost.attention, "total_flops": cost.total}
                | {"attention": cost.attention, "total": cost.total}  # as older files have them
                for name, cost in costs.items()
            },
        }
        _write(arguments.json, json.dumps(results, indent=1) + "\n")
    return 0


def _write(out: str, text: str) -> None:
    """Write --json atomically; a pipe or a device is written directly."""
    try:
        path = led_to(Path(out))
        if path.is_file() or not path.exists():
            write_atomically(path, text.encode())
        else:
            Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--json {out} cannot be written: {error.strerror}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status of `exit_status`."""
    return exit_status(lambda: run(argv))
