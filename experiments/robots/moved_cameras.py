"""Success of a policy whose cameras were moved, turned or changed, without retraining.

    python -m experiments.robots.moved_cameras [RUN ...] [--out FILE] [--poses POSE ...]

RUN is a run's directory, a checkpoint or a policy that ships; without any, the one that votes for
footholds. Every pose is evaluated on the same terrains as the original cameras, so that losses are
paired. Each pose is saved as soon as it is evaluated; when restarted, the command evaluates the
missing ones.

A loss is tested by random signs (`training.interventions.verdict`), one-sided, all poses
of a policy corrected together (Holm); the interval of a difference is Bonett and Price's, for
paired shares, 95 % each.
"""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import figure
from experiments.figure import Arguments
from training.analysis.agents import Agent, find_agents
from training.analysis.arguments import EVALUATION_SEED, positive
from training.analysis.evaluator import play
from training.collect import environments
from training.command.errors import did_you_mean
from training.command.files import read_bytes, writing
from training.command.files import write_atomically as write
from training.interventions.verdict import chance, corrected, interval
from training.io import checkpoint, config
from training.io.config import UserError
from training.io.run_log import provenance

SHIPPED = ("stepping_stones",)
UNCHANGED = "unchanged"
CAMERAS = ("front_camera", "belly_camera")
Change = Mapping[str, Any]
"""Settings of a camera; `moved_m` is added to its position."""


def _both(**change: Any) -> dict[str, Change]:
    return dict.fromkeys(CAMERAS, change)


POSES: dict[str, dict[str, Change]] = {
    UNCHANGED: {},
    "5 cm forward": _both(moved_m=(0.05, 0.0, 0.0)),
    "5 cm back": _both(moved_m=(-0.05, 0.0, 0.0)),
    "5 cm up": _both(moved_m=(0.0, 0.0, 0.05)),
    "5 cm to the side": _both(moved_m=(0.0, 0.05, 0.0)),
    "pitched by 10 degrees, looking ahead": _both(pitch_deg=80.0),
    "pitched by 10 degrees, looking back": _both(pitch_deg=80.0, yaw_deg=180.0),
    "pitched by 20 degrees, looking ahead": _both(pitch_deg=70.0),
    "front camera pitched by 20 degrees": {"front_camera": {"pitch_deg": 70.0}},
    "tilted by 10 degrees to the left": _both(pitch_deg=80.0, yaw_deg=90.0),
    "yawed by 20 degrees": _both(yaw_deg=20.0),
    "rolled by 10 degrees": _both(roll_deg=10.0),
    "a quarter turned": _both(width_along="lateral"),
    "field of view 65 degrees": _both(fov_deg=65.0),
    "field of view 90 degrees": _both(fov_deg=90.0),
    "48 x 64 pixels": _both(height_px=48, width_px=64),
    "96 x 128 pixels": _both(height_px=96, width_px=128),
    "48 x 64 pixels, yawed by 20 degrees": _both(height_px=48, width_px=64, yaw_deg=20.0),
}


def posed(agent: Agent, pose: str) -> Agent:
    """The agent with its cameras at a pose."""
    settings = environments.resolved(agent.env_id, agent.env_settings)
    for camera, change in POSES[pose].items():
        moved_m = np.array(change.get("moved_m", (0.0, 0.0, 0.0)))
        place = [round(float(x), 6) for x in np.array(settings[camera]["position_m"]) + moved_m]
        kept = {key: value for key, value in change.items() if key != "moved_m"}
        config.merge(settings, {camera: {"position_m": place, **kept}})
    moved = environments.resolved(agent.env_id, settings)
    return dataclasses.replace(agent, env_settings=moved, force=True)


def walk(agent: Agent, seeds: Sequence[int], workers: int) -> dict[str, Any]:
    """The outcome of each terrain, or the reason why the policy rejects these cameras."""
    with agent.make_env() as env:
        try:
            agent.make_policy(env)
        except UserError as error:  # without the place of the policy's file
            reason = str(error).replace(str(agent.checkpoint), agent.name)
            return {"refused": reason.replace("\n", " ")}
    episodes = list(play(agent, seeds, workers))
    return {
        "success": [int(bool(episode.success)) for episode in episodes],
        "reward": [round(episode.reward, 6) for episode in episodes],
    }


def compared(of_agent: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each evaluated pose against the original cameras, by name: success, the losses of success and
    reward with intervals, and the corrected p-value of the loss."""
    walked = {pose: found for pose, found in of_agent.items() if "refused" not in found}
    before = {key: np.array(of_agent[UNCHANGED][key], float) for key in ("success", "reward")}
    lost = {
        pose: {key: before[key] - np.array(found[key], float) for key in before}
        for pose, found in walked.items()
        if pose != UNCHANGED
    }
    p = corrected([chance(one["success"]) for one in lost.values()])
    return {
        pose: {
            "success": float(np.mean(walked[pose]["success"])),
            "lost": float(one["success"].mean()),
            "lost_interval_95": interval(one["success"], binary=True),
            "p": chance(one["success"]),
            "p_corrected": chances,
            "reward_lost": float(one["reward"].mean()),
            "reward_lost_interval_95": interval(one["reward"]),
        }
        for (pose, one), chances in zip(lost.items(), p, strict=True)
    }


def rows(of_agent: Mapping[str, Any]) -> list[str]:
    """A policy's figures as a Markdown table, one pose per line."""
    lines, found = [], compared(of_agent)
    order = [*(pose for pose in POSES if pose in of_agent), *(set(of_agent) - set(POSES))]
    for pose, one in ((pose, of_agent[pose]) for pose in order):
        if "refused" in one:
            lines.append(f"| {pose} | refused | | | |")
        elif pose == UNCHANGED:
            lines.append(f"| {pose} | {100 * np.mean(one['success']):.0f} | | | |")
        else:
            its = found[pose]
            low, high = its["lost_interval_95"] or (np.nan, np.nan)
            lines.append(
                f"| {pose} | {100 * its['success']:.0f} | {100 * its['lost']:.0f} "
                f"({100 * low:.0f} to {100 * high:.0f}) | {its['p']:.2g} | "
                f"{its['p_corrected']:.2g} |"
            )
    return lines


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures as tables of Markdown."""
    head = "| | success, % | points lost, 95 % interval | p | corrected |\n|---|---|---|---|---|"
    parts = ["\n".join([f"`{name}`", "", head, *rows(one)]) for name, one in results.items()]
    return "\n\n".join(parts)


def _found(out: str | None, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The results for these terrains in the file at --out."""
    if out is None or not Path(out).exists():
        return {}
    try:
        facts = json.loads(read_bytes(out))
        its_seeds, results = facts["seeds"], facts["results"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"--out {out} is not a file of this command; give another one") from None
    if its_seeds != list(seeds):
        raise UserError(
            f"--out {out} is of terrains {its_seeds[0]} to {its_seeds[-1]}, not of {seeds[0]} to "
            f"{seeds[-1]}; give another file"
        )
    known: dict[str, dict[str, Any]] = results
    return known


def run(arguments: Arguments) -> None:
    """Evaluate the missing poses, save them and print the tables. Raises UserError."""
    for pose in arguments.poses:
        if pose not in POSES:
            raise UserError(f"--poses {pose} is unknown{did_you_mean(pose, POSES)}")
    agents = find_agents(arguments.runs, [], None, [])
    for agent in agents:
        if agent.env_id != environments.DEFAULT:
            raise UserError(
                f"{agent.name} was trained in {agent.env_id}, not in {environments.DEFAULT}"
            )
    seeds = range(arguments.seed, arguments.seed + arguments.terrains)
    results = _found(arguments.out, seeds)
    files = {p.name: checkpoint.load(p.checkpoint).path.name for p in agents if p.checkpoint}
    facts = {
        "benchmark": "moved_cameras", "seeds": list(seeds), "policies": files,
        "provenance": provenance({"seed": seeds[0]}), "results": results,
    }  # fmt: skip
    for agent in agents:
        of_agent = results.setdefault(agent.name, {})
        for pose in dict.fromkeys([UNCHANGED, *arguments.poses]):
            if pose in of_agent:
                continue
            found = of_agent[pose] = walk(posed(agent, pose), seeds, arguments.workers)
            said = found.get("refused") or f"{np.mean(found['success']):.2f}"
            print(f"{agent.name}, {pose}: {said}", file=sys.stderr, flush=True)
            if arguments.out is not None:
                with writing(Path(arguments.out)):
                    text = json.dumps(facts, separators=(",", ":"))
                    write(Path(arguments.out), f"{text}\n".encode())
    print(table({agent.name: results[agent.name] for agent in agents}))


main = figure.file_command(
    run,
    figure.option("runs", nargs="*", metavar="RUN", default=list(SHIPPED)),
    figure.option("--out", metavar="FILE", help="save the figures here (JSON), and resume"),
    figure.option("--terrains", type=positive, default=100, help="default %(default)s"),
    figure.option("--seed", type=int, default=EVALUATION_SEED,
                  help="first seed (default %(default)s)"),
    figure.option("--poses", nargs="+", default=list(POSES), metavar="POSE",
                  help=f"poses, of these: {'; '.join(POSES)}"),
    figure.option("--workers", type=positive, default=1, help="processes (default 1)"),
)  # fmt: skip
