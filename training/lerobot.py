"""Write demonstrations, or episodes of a policy, as a LeRobotDataset of format v3.0.

python -m training.lerobot demos/sweep --out lerobot/sweep
python -m training.lerobot stepping_stones --episodes 100 --out lerobot/walk
"""

if __name__ == "__main__":  # first, as what follows takes seconds to load
    from training.command.signals import open_command

    raise SystemExit(open_command("training.lerobot"))

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import gymnasium

import foveate_extras
from training.analysis.arguments import SCRIPTED, add_arguments
from training.collect.env_settings import ForeignId, foreign
from training.collect.environments import make_env, step_s
from training.collect.episode import Policy, run_episode
from training.command.errors import UserError
from training.command.files import lock, writing
from training.command.progress import ProgressBar
from training.command.signals import exit_status
from training.io.config import ArgumentParser, number


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="training.lerobot", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "source", nargs="?", metavar="DEMOS_OR_RUN",
        help="directory of demonstrations, all of which are written; or a policy: a run directory, "
        "a checkpoint or a shipped policy's name, which plays --episodes",
    )  # fmt: skip
    parser.add_argument("--out", metavar="DIR", required=True, help="the dataset; a new directory")
    task = "description of the task (default: the environment's id)"
    parser.add_argument("--task", metavar="WORDS", help=task)
    rate = "steps a second, where the environment does not say how many"
    parser.add_argument("--fps", type=number(float, 1e-6, 1e6), help=rate)
    add_arguments(parser, episodes=100, device=False)
    return parser


def run(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it. Raises UserError."""
    arguments = _parser().parse_args(argv)
    import torch  # and what loads it: --help is quick without

    from training.demonstrations.format import MASTER

    torch.set_num_threads(1)
    foveate_extras.require("training.lerobot", "lerobot", "pyarrow")
    if len(arguments.policy) + (arguments.source is not None) != 1:
        raise UserError(f"give one DEMOS_OR_RUN, or one --policy {'|'.join(SCRIPTED)}")
    source = Path(arguments.source or "")
    is_recorded = source.name == MASTER or (arguments.source and (source / MASTER).exists())
    out = Path(arguments.out)
    with _new_directory(out) as folder:
        frames = (_demonstrations if is_recorded else _episodes)(arguments, folder)
    print(f"wrote {frames} frames; read them with LeRobotDataset({out.name!r}, root={str(out)!r})")
    return 0


@contextmanager
def _new_directory(out: Path) -> Iterator[Path]:
    """A directory beside `out` that is renamed to it when all is written; raises UserError if `out`
    exists. Remains of a killed export are removed."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} must be a new directory, but something is there")
    part = out.with_name(f".{out.name}.part")
    with writing(out):
        part.mkdir(parents=True, exist_ok=True)
        with lock(part):
            for left_over in ("data", "meta"):
                rmtree(part / left_over, ignore_errors=True)
            try:
                yield part
            except BaseException:
                rmtree(part, ignore_errors=True)
                raise
            (part / ".lock").unlink(missing_ok=True)
            os.replace(part, out)


def _rate(env: gymnasium.Env, given: float | None) -> float:
    rate = given or round(1 / step_s(env), 6)
    if not rate > 0:
        raise UserError("the environment does not say how many steps a second has: give --fps")
    return rate


def _demonstrations(arguments: Any, folder: Path) -> int:
    """Write all demonstrations of a directory; returns the number of frames."""
    from training.demonstrations.lerobot_writer import DatasetWriter
    from training.demonstrations.reader import master_of, read_demo, read_master

    path = master_of(Path(arguments.source))
    recording, numbers, masks = read_master(path)
    rate = arguments.fps
    if rate is None:
        found = recording.env_id  # in a file that somebody else may have written
        env_id = arguments.env or (ForeignId(found) if ":" in found else found)
        with make_env(env_id, foreign(recording.env)) as env:
            rate = _rate(env, None)
    metadata = {
        "source": "demonstrations", "env_id": recording.env_id, "env": recording.env,
        "seed": recording.seed, "episodes": numbers, "valid": masks["valid"],
    }  # fmt: skip
    task, frames = arguments.task or recording.env_id, 0
    with (
        DatasetWriter(folder, recording.observation, recording.action, rate, task, metadata) as to,
        ProgressBar(total=len(numbers), unit="episode") as bar,
    ):
        for each in numbers:
            demo = read_demo(path.parent, each, recording)
            for step in range(len(demo)):
                to.add(demo.observation(step), demo.actions[step], float(demo.rewards[step]))
            to.end_episode(bool(demo.final_info.get("success", 0)))
            frames += len(demo)
            bar.update()
        to.close()
    return frames


def _episodes(arguments: Any, folder: Path) -> int:
    """Run and write the episodes of a policy; returns the number of frames."""
    from training.analysis.agents import find_agents
    from training.demonstrations.format import observation_spec
    from training.demonstrations.lerobot_writer import DatasetWriter, action_spec

    files = [] if arguments.source is None else [arguments.source]
    (agent,) = find_agents(
        files, arguments.policy, arguments.env, arguments.set, repair=arguments.repair,
        own=arguments.custom, force=arguments.force,
    )  # fmt: skip
    env_id, frames = str(agent.env_id), 0
    metadata = {
        "source": f"policy {agent.name}", "env_id": env_id, "env": agent.env_settings,
        "seed": arguments.seed,
    }  # fmt: skip
    with closing(agent.make_env()) as env:
        writer = DatasetWriter(
            folder, observation_spec(env.observation_space), action_spec(env.action_space),
            _rate(env, arguments.fps), arguments.task or env_id, metadata,
        )  # fmt: skip

        def keep(
            env: gymnasium.Env, observation: Any, action: Any, reward: float, policy: Policy
        ) -> None:
            writer.add(observation, action, reward)

        policy = agent.make_policy(env)
        with writer, ProgressBar(total=arguments.episodes, unit="episode") as bar:
            for seed in range(arguments.seed, arguments.seed + arguments.episodes):
                policy = agent.for_episode(policy, env, seed)
                try:
                    episode = run_episode(env, policy, seed, on_step=keep)
                except FloatingPointError as error:
                    raise UserError(f"{agent.name}: {error}") from None
                writer.end_episode(bool(episode.success))
                frames += episode.steps
                bar.update()
            writer.close()
    return frames


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status of `exit_status`."""
    return exit_status(lambda: run(argv))
