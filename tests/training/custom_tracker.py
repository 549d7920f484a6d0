"""A tracker of a user's own: a line of JSON a step."""

import json
import random

import numpy as np
import torch

FILE = "own.jsonl"


class Lines:
    """Keeps what it is given, and draws from every generator that it can reach."""

    def __init__(self, directory, config):
        self.path = directory / FILE
        self.seed = config["seed"]

    def last_step(self):
        return max((line["step"] for line in read(self.path.parent)), default=0)

    def log(self, values, step):
        random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, "seed": self.seed, **values}) + "\n")

    def close(self):
        with self.path.open("a"):
            pass


def read(run):
    path = run / FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
