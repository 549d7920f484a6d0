"""Text tables of the FLOPs and latency of policies."""

from collections.abc import Callable, Mapping

from training.analysis.op_counter import OTHER
from training.analysis.step_cost import COMPONENTS, StepCost

_TITLES = {"tokens": "tokenising"}
"""Of components whose names would be read as counts."""


def table(costs: Mapping[str, StepCost]) -> str:
    """The costs as text, one policy a line: the FLOPs of its components, of attention and of the
    whole step, and its median time in milliseconds.

    Components beyond COMPONENTS have a column where a policy has any of them, and so has the size
    of its recurrent state.
    """
    found = {name for cost in costs.values() for name, flops in cost.flops.items() if flops}
    more = sorted(found - {*COMPONENTS, OTHER})
    columns = [*COMPONENTS[:-1], *more, COMPONENTS[-1], OTHER]
    width = max(28, *map(len, costs))
    titles = [_TITLES.get(column, column) for column in [*columns, "attention", "total"]]
    states = any(cost.state for cost in costs.values())
    lines = [
        f"{'FLOPs/step':<{width}}"
        + "".join(f"{title:>14}" for title in titles)
        + f"{'ms/step':>10}{'parameters':>12}"
        + f"{'state':>10}" * states
    ]
    for name, cost in costs.items():
        values = [*(cost.flops.get(c, 0) for c in columns), cost.attention, cost.total]
        numbers = "".join(f"{value:>14,}" for value in values)
        state = f"{cost.state:>10,}" * states
        lines.append(
            f"{name:<{width}}{numbers}{cost.latency_ms:>10.3f}{cost.parameters:>12,}{state}"
        )
    return "\n".join(lines)


_COMPARED: dict[str, Callable[[StepCost], float | None]] = {
    "attention FLOPs": lambda cost: cost.attention,
    "encoding FLOPs": lambda cost: cost.encode_flops,
    "step FLOPs": lambda cost: cost.total,
    "attention ms": lambda cost: cost.attention_ms,
    "encoding ms": lambda cost: cost.encode_ms,
    "repair ms": lambda cost: cost.repair_ms,
    "step ms": lambda cost: cost.latency_ms,
}


def comparison(costs: Mapping[str, StepCost]) -> str:
    """A text table that compares costs, one policy per line, each with its ratio to the first.

    Attention is projection, exponentials and score; encoding is everything from the image to the
    input of the head; the step is everything from the observation to the action.
    """
    first = next(iter(costs.values()))
    every = costs.values()
    shown = {t: of for t, of in _COMPARED.items() if any(of(cost) is not None for cost in every)}
    width = max(28, *map(len, costs))
    lines = [f"{'variant':<{width}}" + "".join(f"{title:>16}{'ratio':>7}" for title in shown)]
    for name, cost in costs.items():
        cells = [_compared(of(cost), of(first)) for of in shown.values()]
        lines.append(f"{name:<{width}}" + "".join(cells))
    return "\n".join(lines)


def _compared(value: float | None, first: float | None) -> str:
    if value is None:
        return f"{'-':>16}{'-':>7}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
    return f"{number:>16}" + (f"{value / first:>7.3f}" if first else f"{'-':>7}")
