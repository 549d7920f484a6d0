"""Episodes of an evaluation, written down as they are played, so that a killed one goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.episode import Episode
from training.files import write_atomically

__all__ = ["play_on"]


def play_on(
    path: Path,
    facts: dict[str, Any],
    seeds: Sequence[int],
    play: Callable[[Sequence[int]], Iterator[Episode]],
) -> list[Episode]:
    """An episode a seed: those that `path` holds, then the others, each added to it at its end.

    Args:
        path: JSON, a line for `facts` and one for each episode in the order of `seeds`.
        facts: all that the episodes follow from; a file with others is begun anew.
        play: an episode for each seed that it is given, in their order.
    """
    episodes = _read(path, facts, seeds)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(map(_line, (facts, *map(asdict, episodes)))).encode())
    with path.open("a", encoding="utf-8") as file:
        for episode in play(seeds[len(episodes) :]):
            file.write(_line(asdict(episode)))
            file.flush()
            episodes.append(episode)
    return episodes


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data) + "\n"


def _read(path: Path, facts: dict[str, Any], seeds: Sequence[int]) -> list[Episode]:
    """The episodes that are there; a line that a kill cut short ends them."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    first, *lines = text.splitlines(keepends=True) or [""]
    if first != _line(facts):
        return []
    episodes: list[Episode] = []
    for seed, line in zip(seeds, lines, strict=False):
        try:
            episode = Episode(**json.loads(line))
        except (ValueError, TypeError):
            break
        if episode.seed != seed:
            break
        episodes.append(episode)
    return episodes
