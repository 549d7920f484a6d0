"""The directory of a study: whose it is, its configuration, and what a killed process left."""

from __future__ import annotations

import re
from pathlib import Path

from training.command.files import read_bytes, write_atomically
from training.compare.config import StudyConfig
from training.compare.evaluations import episodes_in, unfinished
from training.io import config as configuration
from training.io.config import UserError
from training.io.fingerprint import differences

__all__ = ["PAGE", "PICTURE", "STUDY", "check_directory", "clean", "make_directory", "write_config"]

STUDY, PAGE, PICTURE = "study.yaml", "report.html", "pareto.png"


def check_directory(out: Path, study: StudyConfig, option: str = "--out") -> None:
    """UserError when the directory that an option names belongs to something else."""
    saved = out / STUDY
    if saved.is_file():
        now = {"title": study.title, "demonstrations": study.demonstrations}
        there = configuration.read_yaml(saved)
        for change in differences({key: there.get(key) for key in now}, now):
            if change.key == "title":
                other = f"{change.before!r}, not {change.now!r}"
                raise UserError(f"{out} holds another study, {other}: give another {option}")
            if change.before is not None and _visible(out / "runs"):
                raise UserError(
                    f"{out} has runs with {change.told('the study now has')}; give another --out"
                )
    elif out.exists() and (not out.is_dir() or _visible(out)):
        raise UserError(f"{out} holds something that is no study: give another {option}")


def _visible(folder: Path) -> list[str]:
    found = folder.iterdir() if folder.is_dir() else ()
    return [path.name for path in found if not path.name.startswith(".")]


def make_directory(out: Path) -> None:
    """Make it. UserError where it cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None


def write_config(out: Path, study: StudyConfig) -> None:
    """Write the resolved configuration, where it is not there already."""
    data = configuration.dump(study)
    for curve in data["curves"]:
        if curve["repair"] is None:  # files of studies that knew of none stay as they are
            del curve["repair"]
    for stage in data["stages"]:
        if not stage["always"]:
            del stage["always"]
    for arm in data["arms"]:
        if arm["group"] is None:
            del arm["group"]
    if data["best_seeds"] is None:
        del data["best_seeds"]
    text = configuration.to_yaml(
        data, "Resolved configuration of this study, every default filled in."
    )
    if not (out / STUDY).is_file() or (out / STUDY).read_text(encoding="utf-8") != text:
        write_atomically(out / STUDY, text.encode())


def clean(out: Path) -> None:
    """Remove what a process that was killed left and nothing needs: half a file by the names that
    the study itself gives, episodes of an evaluation whose result is there."""
    for folder, names in (
        (out, "|".join(map(re.escape, (STUDY, PAGE, PICTURE, "costs.json")))),
        (out / "evaluations", r"[a-z0-9.+-]+\.jsonl?"),
        (out / "policies", r"[a-z0-9-]+\.safetensors"),
        (out / "gaze", r"[a-z0-9-]+\.json"),
    ):
        for path in folder.iterdir() if folder.is_dir() else ():
            if re.fullmatch(rf"\.({names})\.\d+", path.name):
                path.unlink()
    for path in (out / "evaluations").glob("*.json"):
        left = unfinished(path)
        if left.is_file() and len(read_bytes(left).splitlines()) <= episodes_in(path) + 1:
            left.unlink()  # and none where more episodes follow
