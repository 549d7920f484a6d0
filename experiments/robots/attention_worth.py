"""The benefit of learned attention: the policy with it, with a random mask and without a mask.

    python -m experiments.robots.attention_worth

Trains three policies from scratch by the same command, seed and budget, which differ only in the
tokens that they keep: the best by attention, a fixed random set of the same size, or all. Then it
evaluates them on the same unseen terrains, with the attention policy once more under a random mask
and once without its mask; `DIR/evaluation/evaluation.json` has the figures. When restarted, it
resumes the existing runs."""

from pathlib import Path

from experiments import figure
from experiments.figure import Arguments
from policies import build
from training import es, evaluate
from training.collect.environments import make_env
from training.io import checkpoint

SELECTIONS = ("learned", "random", "all")


def swapped(source: Path, selection: str, target: Path) -> Path:
    """The policy of a checkpoint with another choice of tokens; everything else is as in
    training."""
    trained = checkpoint.load(source)
    settings = {**trained.config["policy"], "selection": selection}
    config = {**trained.config, "policy": settings}
    with make_env(config["env_id"], config["env"]) as env:
        other = build(settings, env.observation_space, env.action_space)
    other.load_state_dict(trained.policy, strict=False)
    checkpoint.save(target, other.state_dict(), {}, config, trained.state)
    return target


def run(args: Arguments) -> int:
    """Train, swap, evaluate, print."""
    out = Path(args.out)
    common = [f"policy.patch={args.patch}", f"policy.keep={args.keep}", f"workers={args.workers}"]
    runs = []
    for selection in SELECTIONS:
        directory = out / selection
        command = ["--set", *common, *args.set, f"policy.selection={selection}"]
        if args.config:
            command += ["--config", args.config]
        where = "--resume" if (directory / "config.yaml").exists() else "--out"
        status = es.main([where, str(directory), *command])
        if status != 0:
            return status
        runs.append(str(directory))
    learned = checkpoint.resolve(out / "learned")
    for selection in SELECTIONS[1:]:
        path = out / f"learned_then_{selection}.safetensors"
        runs.append(str(swapped(learned, selection, path)))
    numbers = ["--episodes", str(args.episodes), "--workers", str(args.workers)]
    return evaluate.main([*runs, *numbers, "--out", str(out / "evaluation")])


main = figure.file_command(
    run,
    figure.option("--out", required=True, metavar="DIR", help="output directory"),
    figure.option("--config", help="ES configuration (default: the packaged one)"),
    figure.option("--patch", nargs=2, type=int, default=[1, 1], help="token size, pixels"),
    figure.option("--keep", type=float, default=0.2, help="share of tokens kept"),
    figure.option("--episodes", type=int, default=100, help="evaluation terrains"),
    figure.option("--workers", type=int, default=2, help="processes"),
    figure.option("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE"),
)
