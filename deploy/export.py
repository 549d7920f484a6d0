"""Export a policy as a folder that runs without this package: a model, its contract and its card.

    python -m deploy.export stepping_stones_angular_8x8 --to onnx --out walker
    python -m deploy.export runs/NAME --to pt2
    python -m deploy.export runs/NAME --weights int8 --episodes 100

The model is compared with its policy on episodes of the policy. The exit status is 1 if they
differ. For weights in fewer bits, which differ by design, the difference is only reported.
"""

from __future__ import annotations

if __name__ == "__main__":  # first, because the imports below take seconds
    from training.command.signals import open_command

    raise SystemExit(open_command("deploy.export"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

from deploy.contract_file import MODELS, OUTSIDE
from deploy.weights import WEIGHTS
from foveate_extras import require
from policies.common.settings import Repair
from training.analysis.agents import Agent, find_agents
from training.analysis.arguments import EVALUATION_SEED, admitted, positive
from training.collect.environments import step_s
from training.collect.episode import PolicyError
from training.command.files import made_and_locked, reason, write_atomically
from training.command.signals import exit_status
from training.io.config import ArgumentParser, UserError

__all__ = ["main"]

CARD = "README.md"
_BEGUN = ".begun"
"""Folder within the export's, which holds its files until all are written."""
_KINDS = ("onnx", "pt2")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="deploy.export", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "run",
        metavar="RUN_OR_CHECKPOINT",
        help="run directory (its latest checkpoint), checkpoint file, or a shipped policy's name",
    )
    parser.add_argument(
        "--to", choices=_KINDS, default="onnx", help="what to write (default %(default)s)"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="folder (default exported/NAME); one that holds an "
        "export is rewritten",
    )  # fmt: skip
    parser.add_argument(
        "--weights", choices=WEIGHTS, default="float32", help="storage type of trained "
        "weights; with types other than float32, also measure the success (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--observations",
        type=positive,
        default=1000,
        help="decisions that are compared (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=EVALUATION_SEED, help="first seed of the compared "
        "episodes, and of those of --episodes (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--episodes",
        type=positive,
        help="episodes that the model plays by itself in deploy.runtime; their success goes on the "
        "card and to success.json (default none)",
    )
    parser.add_argument(
        "--recorded", type=positive, metavar="N",
        help="write the first N observations to recorded.npz, for deploy.loop (default none)",
    )  # fmt: skip
    parser.add_argument(
        "--evaluation",
        metavar="FILE",
        type=Path,
        help="evaluation.json that holds this policy; the card shows its success",
    )
    parser.add_argument(
        "--outside", choices=OUTSIDE, default="pass", help="treatment of observed numbers out "
        "of the space's bounds in deploy.runtime: pass them on, as in training, clip or refuse "
        "them (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--licence", metavar="TEXT", help="licence of the weights, for the card (default that of a "
        "shipped policy; not stated for others)",
    )  # fmt: skip
    parser.add_argument(
        "--env", metavar="ID", help="Gymnasium id, which must be the run's: MODULE:ID of a run "
        "imports MODULE only when it is given here",
    )  # fmt: skip
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="setting of the environment, as in --set 'front_camera={pitch_deg: 35}'",
    )  # fmt: skip
    parser.add_argument(
        "--repair",
        choices=get_args(Repair),
        help="repair of depth images in place of the policy's; exports need none",
    )
    parser.add_argument(
        "--custom", "--own", metavar="MODULE:CLASS", type=admitted, action="append", default=[],
        help="custom controller or feature map that the policy's file names",
    )  # fmt: skip
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    require("deploy.export", "export")
    for option, given in (("--weights", arguments.weights), ("--episodes", arguments.episodes)):
        if arguments.to != "onnx" and given not in (None, "float32"):
            raise UserError(f"{option} {given} must go with --to onnx, got --to {arguments.to}")
    torch.set_num_threads(1)
    (agent,) = find_agents(
        [arguments.run], [], arguments.env, arguments.set, repair=arguments.repair,
        own=arguments.custom,
    )  # fmt: skip
    out = arguments.out or Path("exported") / agent.name.replace("/", "-")
    _check_free(out)
    with made_and_locked(out) as folder:
        try:
            begun = folder / _BEGUN
            if begun.is_dir():
                shutil.rmtree(begun)
            begun.mkdir()
            try:
                status = _export(agent, begun, arguments)
                _finish(begun, folder)
            finally:
                shutil.rmtree(begun)
            size = (folder / MODELS[arguments.to]).stat().st_size
            print(f"wrote {arguments.to} to {folder}, {size:,} bytes")
            return status
        except (ValueError, FloatingPointError) as error:
            raise UserError(f"{arguments.run}: {error}") from None
        except OSError as error:
            raise UserError(f"--out {out} cannot be written: {reason(error)}") from None


def _check_free(out: Path) -> None:
    from deploy.contract_file import CONTRACT

    there = [path.name for path in out.iterdir()] if out.is_dir() else []
    if set(there) - {".lock"} and not {CONTRACT, _BEGUN} & set(there):
        raise UserError(f"--out {out} holds other files: give another directory")


def _finish(begun: Path, folder: Path) -> None:
    """Move a complete export to its place, and remove the files of a former one. `begun` is there
    until the end, so that an export that is stopped can be repeated."""
    from deploy.contract_file import CONTRACT
    from deploy.recorded import RECORDED
    from deploy.success import SUCCESS

    for name in (CONTRACT, CARD, SUCCESS, RECORDED, *MODELS.values()):
        if (begun / name).exists():
            os.replace(begun / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def _export(agent: Agent, folder: Path, arguments: Any) -> int:
    from deploy import formats, parity
    from deploy.card import card
    from deploy.contract import contract
    from deploy.contract_file import CONTRACT, read_contract
    from deploy.facts import evaluated, facts, shown
    from deploy.recorded import Recording
    from deploy.runtime import Policy, fitted
    from deploy.steps import step_of
    from deploy.success import played
    from training.io.fingerprint import sha256_of

    success = evaluated(agent, arguments.evaluation)
    with agent.make_env() as env:
        policy: Any = agent.make_policy(env)
        step = step_of(policy, env.observation_space, env.action_space)
        period_s = step_s(env)
        rate_hz = None if math.isnan(period_s) else round(1 / period_s, 9)
        written = contract(step, env, rate_hz, arguments.outside)
        observation, _ = env.reset(seed=arguments.seed)
        path = folder / MODELS[arguments.to]
        example = step.example(observation)
        model = formats.write(arguments.to, step, example, path, arguments.weights)
        written["environment"] = {"id": str(agent.env_id), "settings": agent.env_settings}
        written["model"] = {
            "kind": arguments.to, "file": path.name, "sha256": sha256_of(path),
            "opset": formats.OPSET if arguments.to == "onnx" else None,
            "weights": arguments.weights,
        }  # fmt: skip
        write_atomically(folder / CONTRACT, (json.dumps(written, indent=1) + "\n").encode())
        inputs = read_contract(folder).inputs
        clipped = fitted([replace(port, outside="clip") for port in inputs], observation)
        if arguments.to == "onnx":
            Policy(folder).act(clipped)
        recording = Recording(model, step.parts, arguments.recorded or 0)
        try:
            found = parity.compare(
                env, policy, step, recording, arguments.observations, arguments.seed, inputs
            )
            if arguments.episodes is not None:
                seeds = range(arguments.seed, arguments.seed + arguments.episodes)
                success |= shown(played(folder, env, seeds, agent))
        except PolicyError as error:
            raise ValueError(str(error)) from None
        recording.write(folder)
        size = path.stat().st_size
        text = card(
            written,
            facts(agent, policy, observation, found, success, size, arguments.licence),
        )
        write_atomically(folder / CARD, text.encode())
    for where, words in success.items():
        print(f"{where}: {words}")
    return _report(found, bool(step.initial), arguments.weights, arguments.outside)


def _report(found: Any, recurrent: bool, weights: str, outside: str) -> int:
    """Print the result of the comparison; returns the exit status. Weights in fewer bits differ by
    intent."""
    from deploy.parity import LARGEST, ties

    differs = f"the largest difference of an action is {found.action:.2e}"
    if recurrent:
        differs += f", of the recurrent state {found.state:.2e}"
    print(f"{found.decisions} decisions: {differs}")
    if described := ties(found):
        print(described)
    if found.outside:
        print(
            f"observations left their bounds in {found.outside} of {found.decisions} decisions "
            f"({found.first_outside}); the contract says: {outside}"
        )
    policy_ms, model_ms = found.median_ms
    print(
        f"a decision, median CPU time: {policy_ms:.2f} ms of the policy, {model_ms:.2f} ms of the "
        f"model, {policy_ms / model_ms:.2f} times less"
    )
    if found.passed or weights != "float32":
        return 0
    print(
        f"the model is not the policy: {found.beyond} of {found.decisions} decisions differ by "
        f"more than {LARGEST:g} of half the action's range, and are no ties: the policy does not "
        "act so where its observation and state are a few roundings off",
        file=sys.stderr,
    )
    return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; exit status as in `exit_status`, or 1 if model and policy differ."""
    return exit_status(lambda: run(argv))
