"""Episodes of an evaluation, written down as they are played, so that a killed one goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from training.collect.episode import Episode
from training.command.files import append, read_bytes, write_atomically

__all__ = ["play_on"]

_EPISODE = TypeAdapter(Episode)


def play_on(
    path: Path,
    facts: dict[str, Any],
    seeds: Sequence[int],
    play: Callable[[Sequence[int]], Iterator[Episode]],
    played: Sequence[Episode] = (),
) -> list[Episode]:
    """An episode a seed: those that are there, then the others, each added to `path` at its end.

    Args:
        path: JSON, a line for `facts` and one for each episode in the order of `seeds`.
        facts: fingerprint of all that they follow from; a file of others is begun anew.
        play: an episode for each seed that it is given, in their order.
        played: the first episodes, where they are known from elsewhere.
    """
    episodes = max(_read(path, facts, seeds), list(played), key=len)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(map(_line, (facts, *map(asdict, episodes)))).encode())
    with path.open("ab", buffering=0) as file:
        for episode in play(seeds[len(episodes) :]):
            append(file, _line(asdict(episode)).encode())
            episodes.append(episode)
    return episodes


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data) + "\n"


def _read(path: Path, facts: dict[str, Any], seeds: Sequence[int]) -> list[Episode]:
    """The episodes that are there; a line that a kill cut short ends them."""
    if not path.is_file():
        return []
    text = read_bytes(path).decode(errors="replace")
    first, *lines = text.splitlines(keepends=True) or [""]
    if first != _line(facts):
        return []
    episodes: list[Episode] = []
    for seed, line in zip(seeds, lines, strict=False):
        try:
            episode = _EPISODE.validate_json(line, strict=True)
        except ValueError:
            break
        if episode.seed != seed or not (episode.steps > 0 and math.isfinite(episode.reward)):
            break
        episodes.append(episode)
    return episodes
