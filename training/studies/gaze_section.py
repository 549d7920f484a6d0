"""Where the policies of a study look: measured for each run, and a section of the page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

import envs
from policies import PolicyConfig
from training.evaluation.gaze import Gaze, axes_ahead, depth_edges, gaze, oracle_views
from training.pages.html import note, table
from training.runs import checkpoint
from training.runs.fingerprint import sha256_of
from training.runs.state_files import read_json
from training.studies.config import StudyConfig
from training.studies.evaluations import settings_of, write_json
from training.studies.runs import Run
from training.studies.shares import Product

__all__ = ["Look", "gaze_section", "has_gaze"]

EPISODES = 4
"""Terrains that the oracle walks, the first of the evaluation."""
ACROSS = (
    "from one row of the image to the next, as it was measured then: where columns run ahead, as "
    "with the cameras of SteppingStones-v0, these edges are to the left and right, such as stones' "
    "sides"
)


def has_gaze(run: Run) -> bool:
    """Whether a run's policy chooses among tokens of depth images."""
    policy = run.job.policy
    task = envs.find_task(run.job.env_id)
    if not isinstance(policy, PolicyConfig) or task is None or task.edges is None:
        return False
    return policy.selection != "all" and policy.variant != "trans"


class Look(Product):
    """What the policy of a run keeps, in what the oracle sees."""

    folder, suffix, words = "gaze", ".json", "measure where {} looks"

    def do(self) -> None:
        """Measure it."""
        settings = settings_of(self.run.job.env_id, self.run.job.env, self.study.env)
        first = self.study.evaluation_seed
        env_id = self.run.job.env_id
        views = oracle_views(settings, range(first, first + EPISODES), env_id)
        policy, _ = checkpoint.load_policy(self.run.directory)
        past_m, ahead = depth_edges(env_id).past_m, axes_ahead(settings, env_id)
        found = dataclasses.asdict(gaze(policy, views, past_m, ahead))
        sha256 = sha256_of(checkpoint.resolve(self.run.directory))
        write_json(self.path, {**found, "checkpoint_sha256": sha256, "views": len(views)})


def gaze_section(study: StudyConfig, runs: Sequence[Run]) -> list[str]:
    """HTML of what is measured of these runs; nothing without.

    UserError when a file is damaged.
    """
    files = [(run, Look.path_of(run.directory)) for run in runs]
    measured = [(run, read_json(Gaze, path)) for run, path in files if path.is_file()]
    rows = []
    for number, arm in enumerate(study.arms):
        found = [one for run, one in measured if run.arm.name == arm.name]
        if found:
            rows.append([f"{number + 1}. {escape(arm.name)}", str(len(found)), *_cells(found)])
    if not rows:
        return []
    edges = depth_edges(measured[0][0].job.env_id)
    edge, neighbours = edges.edge, "from one pixel to the next ahead"
    if not all(one.ahead for _, one in measured):
        edge, neighbours = "an edge between rows", ACROSS
    head = [
        ("arm", ""), ("seeds", ""), (f"on {edge}", "of the tokens kept, mean ± sd"),
        ("chance", "of all tokens"), ("times", "chance"),
        (edges.past, "of the pixels kept"), ("chance", "of all pixels"),
    ]  # fmt: skip
    return [
        "<h2>Where the policies look</h2>",
        table(head, rows),
        note(f"What they keep of the views of the oracle on {EPISODES} evaluation terrains. "
             f"{edge[:1].upper()}{edge[1:]} is where depth crosses {edges.past_m:g} m, "
             f"{edges.between}, {neighbours}."),
        note(_together([(run.seed, one) for run, one in measured if not run.arm.control], edge,
                       edges.past)),
    ]  # fmt: skip


def _together(policies: list[tuple[int, Gaze]], edge: str, past: str) -> str:
    """What all policies with attention keep, by seed too, and how many of them more than chance."""
    if not policies:
        return ""
    seeds = np.array([seed for seed, _ in policies])

    def kept(part: str) -> str:
        shares = np.array([getattr(one, f"{part}_kept") for _, one in policies])
        more = sum(getattr(one, f"{part}_kept") > getattr(one, part) for _, one in policies)
        by_seed = [f"{100 * shares[seeds == seed].mean():.1f}" for seed in dict.fromkeys(seeds)]
        return (
            f"{100 * shares.mean():.1f} % (by seed {', '.join(by_seed)} %), "
            f"{more} of {len(policies)} more than chance"
        )

    return f"All kinds of attention: on {edge} {kept('edges')}; {past} {kept('past')}."


def _cells(found: list[Gaze]) -> list[str]:
    def mean(of: Callable[[Gaze], float]) -> float:
        return float(np.mean([of(one) for one in found]))

    edges = [one.edges_kept for one in found]
    spread = f" ± {100 * np.std(edges, ddof=1):.1f}" if len(edges) > 1 else ""
    return [
        f"{100 * np.mean(edges):.1f}{spread} %",
        f"{100 * mean(lambda one: one.edges):.1f} %",
        f"{mean(lambda one: one.edges_kept / one.edges if one.edges else math.nan):.2f} ×",
        f"{100 * mean(lambda one: one.past_kept):.1f} %",
        f"{100 * mean(lambda one: one.past):.1f} %",
    ]
