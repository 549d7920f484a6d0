"""FLOPs and latency of one inference step, by component, as really executed.

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

from __future__ import annotations

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.flops"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from training.algorithms.targets import prepare, targets_of, variants
from training.analysis.agents import admitted, check_device, device_name, positive
from training.analysis.cost_table import comparison, table
from training.analysis.step_cost import measure_all
from training.command.files import led_to, write_atomically
from training.command.signals import exit_status
from training.io.config import ArgumentParser, UserError
from training.io.run_log import provenance

__all__ = ["main"]


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
        "--env",
        metavar="ID",
        help="Gymnasium id; default: the run's or the configuration's, which it must be: MODULE:ID "
        "of a run imports MODULE only when it is given here",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="field of the YAML configurations, as in --set num_features=256",
    )
    parser.add_argument(
        "--vary",
        metavar="KEY=VALUE,...",
        help="compare a configuration's policies with these values of a field, ratios to the "
        "first: --vary feature_map=positive:256,softmax,angular_hybrid:8:8 (NAME:m:n) or "
        "--vary policy.patch=[25,25],[20,20]",
    )
    parser.add_argument(
        "--own", metavar="MODULE:CLASS", type=admitted, action="append", default=[],
        help="policy, controller or feature map of your own that a run names",
    )  # fmt: skip
    parser.add_argument("--device", default="cpu", help="PyTorch device (cpu, cuda)")
    parser.add_argument("--calls", type=positive, default=200, help="timed calls (default 200)")
    parser.add_argument("--json", metavar="FILE", help="write the figures here too")
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    check_device(arguments.device)
    by_label = variants(arguments.vary, arguments.set)
    targets = [
        (given, target)
        for given in arguments.targets
        for target in targets_of(given, arguments.env, arguments.set, by_label)
    ]
    names = [target.name for _, target in targets]
    subjects = {}
    for given, target in targets:
        name = target.name
        if names.count(name) > 1:
            name = f"{given} {name}" if by_label else given
        subjects[name] = prepare(target, arguments.device)
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
    """Write --json, whole or not at all, but into a pipe or a device as it comes."""
    try:
        path = led_to(Path(out))
        if path.is_file() or not path.exists():
            write_atomically(path, text.encode())
        else:
            Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--json {out} cannot be written: {error.strerror}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; its exit status, as of `exit_status`."""
    return exit_status(lambda: run(argv))
