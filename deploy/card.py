"""The model card, `README.md`, of an exported policy."""

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """Facts of a model card that the contract does not hold."""

    name: str
    env_id: str
    task: str
    """Description of the task; "" if there is none."""
    settings: Mapping[str, Any]
    """Settings of the policy."""
    training: Mapping[str, Any]
    """Rows of a table on the training."""
    success: Mapping[str, str]
    """Source of the figures, and the figures."""
    flops: int
    parameters: int
    model_bytes: int
    policy_ms: float
    model_ms: float
    processor: str
    decisions: int
    action_difference: float
    state_difference: float
    ties: str
    """Description of ties between actions; "" if there are none."""
    versions: Mapping[str, str | None]
    commit: str
    licence: str


def card(contract: Mapping[str, Any], facts: Facts) -> str:
    """The text."""
    parts = [
        f"# {facts.name}",
        f"A policy for `{facts.env_id}`, exported by Foveate. {facts.task}".strip(),
        _use(contract),
        "## Inputs and outputs",
        _ports(contract),
        f"All units, frames, orders and bounds: `contract.json`. {_rate(contract)}",
        "## Evaluation",
        _success(facts),
        "## What it costs",
        _table(("", ""), _costs(facts).items()),
        "## Agreement with the policy",
        _compared(contract, facts),
        "## Training",
        _table(("", ""), _sources(facts).items()),
        "## Settings of the policy",
        _table(("setting", "value"), ((k, f"`{v}`") for k, v in sorted(facts.settings.items()))),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _compared(contract: Mapping[str, Any], facts: Facts) -> str:
    text = (
        f"Over {facts.decisions} decisions of the policy's own episodes, actions differ by at most "
        f"{facts.action_difference:.1e} from the policy's in PyTorch"
    )
    if contract["states"]:
        text += f", and the recurrent state by {facts.state_difference:.1e} of its largest number"
    text += f"; {facts.ties}" if facts.ties else ""
    weights = contract["model"]["weights"]
    if weights == "float32":
        return f"{text}."
    return (
        f"{text}. Trained weights are stored in {weights}, so that actions differ by intent: no "
        "limit is set, and what counts is the success above."
    )


def _success(facts: Facts) -> str:
    if not facts.success:
        return "Not measured."
    return _table(("of", "success"), facts.success.items())


def _use(contract: Mapping[str, Any]) -> str:
    if contract["model"]["kind"] != "onnx":
        return '`model.pt2` is a program of `torch.export`: `torch.export.load("model.pt2")`.'
    found = [one["name"] for one in contract["inputs"]]
    names = ", ".join(
        f"{json.dumps(name, ensure_ascii=False)}: {variable}"
        for name, variable in zip(found, _variables(found), strict=True)
    )
    return (
        "```python\nfrom deploy.runtime import Policy  # NumPy and ONNX Runtime alone\n\n"
        f'policy = Policy(".")\npolicy.reset()\naction = policy.act({{{names}}})\n```'
    )


def _variables(names: Sequence[str]) -> list[str]:
    """Distinct Python names for names of inputs."""
    found: list[str] = []
    for name in names:
        variable = re.sub(r"\W", "_", name)
        if not variable.isidentifier() or keyword.iskeyword(variable):
            variable = f"part_{variable}"
        while variable in found or variable in ("policy", "action", "Policy"):
            variable += "_"
        found.append(variable)
    return found


def _rate(contract: Mapping[str, Any]) -> str:
    rate = contract["rate_hz"]
    return "" if rate is None else f"A decision is due {rate:g} times a second."


def _ports(contract: Mapping[str, Any]) -> str:
    rows = [("in", one) for one in contract["inputs"]]
    rows += [("state", one) for one in contract["states"]]
    rows += [("out", one) for one in contract["outputs"]]
    cells = ((way, f"`{one['name']}`", f"{one['shape']}", one["dtype"]) for way, one in rows)
    text = _table(("", "name", "shape", "type"), cells)
    if contract["noise"] is not None:
        text += (
            f"\n\n`{contract['noise']['input']}` holds the {contract['noise']['shape'][0]} random "
            "numbers of the search for an action, which is inside the model."
        )
    return text


def _costs(facts: Facts) -> dict[str, str]:
    return {
        "FLOPs of a decision": f"{facts.flops:,}",
        "parameters": f"{facts.parameters:,}",
        "bytes of the model's file": f"{facts.model_bytes:,}",
        "a decision of the model, median CPU time": f"{facts.model_ms:.2f} ms",
        "of the policy in PyTorch, one after the other": f"{facts.policy_ms:.2f} ms",
        "measured on": facts.processor,
    }


def _sources(facts: Facts) -> dict[str, str]:
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items() if version)
    return {
        **{key: str(value) for key, value in facts.training.items()},
        "commit of the exporter": facts.commit,
        "versions": versions,
        "licence": facts.licence,
    }


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
