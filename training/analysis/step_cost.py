"""Cost of an inference step: FLOPs by component, medians of interleaved timings, and their tables.

The speed of a machine varies for seconds at a time. So policies that are compared
are timed in turn, call by call: each sees the same good and bad moments.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
from torch import nn

from attention import RandomFeatureAttention
from training.analysis.op_counter import OTHER, OpCounter
from training.collect.episode import Policy

COMPONENTS = ("tokens", "projection", "exponentials", "score", "controller")
"""Parts of an implicit attention policy, in the order of the computation; others have more."""
ATTENTION = ("projection", "exponentials", "score")
"""The components that are attention: all that differs between feature maps."""

Step = Callable[[], Any]


@dataclass(frozen=True)
class StepCost:
    """The cost of one inference step."""

    flops: dict[str, int]
    """FLOPs by component."""
    operators: dict[str, int]
    """The same FLOPs by PyTorch operator."""
    latency_ms: float
    """Median time of `policy.act`, milliseconds."""
    parameters: int
    """Trainable and fixed numbers in `policy.parameters()`."""
    encode_flops: int | None = None
    """FLOPs of encoding the image; None for a policy without `encode`, or not measured."""
    encode_ms: float | None = None
    """Median time of encoding the image, which is on the device, milliseconds."""
    attention_ms: float | None = None
    """Median time of what `attention` counts, milliseconds: the feature maps of all attention
    layers, with their queries, keys and values given; None without such layers."""
    state: int = 0
    """Size of the recurrent state after as many decisions as were timed."""
    repair_ms: float | None = None
    """Median time of repairing depth images, milliseconds, which no operator of PyTorch does and
    no FLOPs count; None for a policy that repairs none."""

    @property
    def total(self) -> int:
        """FLOPs of the whole step."""
        return sum(self.flops.values())

    @property
    def attention(self) -> int:
        """FLOPs of attention: random projections, exponentials and scores."""
        return sum(self.flops.get(name, 0) for name in ATTENTION)


def count(step: Step) -> OpCounter:
    """Run `step` once and count its FLOPs. Raises UncountedError for an unknown operator."""
    with torch.no_grad(), OpCounter() as counter:
        step()
    return counter


def measure(
    policy: Policy, observation: Any, device: str = "cpu", calls: int = 100, warm_up: int = 10
) -> StepCost:
    """FLOPs, median latency over `calls` calls after `warm_up`, and size of a policy."""
    steps = _parts(policy, observation)
    return _cost(policy, steps, _medians_ms(steps, device, calls, warm_up))


def measure_all(
    subjects: Mapping[str, tuple[Policy, Any]],
    device: str = "cpu",
    calls: int = 100,
    warm_up: int = 10,
) -> dict[str, StepCost]:
    """The costs of policies by name, each with an observation, timed in turn; encoding and
    attention apart where a policy has them."""
    steps = {
        name: _parts(policy, seen) | _inner_parts(policy, seen, device)
        for name, (policy, seen) in subjects.items()
    }
    flat = {(name, part): step for name, parts in steps.items() for part, step in parts.items()}
    times_ms = _medians_ms(flat, device, calls, warm_up)
    return {
        name: _cost(policy, steps[name], {part: times_ms[name, part] for part in steps[name]})
        for name, (policy, _) in subjects.items()
    }


def median_ms(step: Step, device: str = "cpu", calls: int = 100, warm_up: int = 10) -> float:
    """Median time of `step` over `calls` calls, milliseconds; on a GPU by CUDA events."""
    return _medians_ms({"": step}, device, calls, warm_up)[""]


def decisions_ms(
    subjects: Mapping[str, tuple[Policy, Sequence[Any]]], device: str = "cpu", calls: int = 200
) -> dict[str, list[float]]:
    """Times of `calls` decisions by policy, milliseconds, each on the observations of an episode,
    repeated: CPU time of this thread, or CUDA event time on a GPU.

    Policies decide in turn. A policy with recurrent state makes as many decisions beforehand, so
    that a bounded memory is full.
    """
    timed = _gpu_ms if torch.device(device).type == "cuda" else thread_ms
    times_ms: dict[str, list[float]] = {name: [] for name in subjects}
    with torch.no_grad():
        for policy, seen in subjects.values():
            policy.reset()
            policy.act(seen[0])
            before = calls if getattr(policy, "carried", 0) else min(calls, 10)
            for observation in islice(cycle(seen), before):
                policy.act(observation)
        for call in range(calls):
            for name, (policy, seen) in subjects.items():
                times_ms[name].append(timed(partial(policy.act, seen[call % len(seen)])))
    return times_ms


def _cost(policy: Policy, steps: dict[str, Step], times_ms: Mapping[str, float]) -> StepCost:
    counter = count(steps["act"])
    names = [*COMPONENTS, *sorted(set(counter.by_component) - set(COMPONENTS) - {OTHER}), OTHER]
    parameters = policy.parameters() if isinstance(policy, nn.Module) else ()
    return StepCost(
        flops={name: counter.by_component[name] for name in names},
        operators=dict(sorted(counter.by_operator.items())),
        latency_ms=times_ms["act"],
        parameters=sum(parameter.numel() for parameter in parameters),
        state=getattr(policy, "carried", 0),
        encode_flops=count(steps["encode"]).total if "encode" in steps else None,
        encode_ms=times_ms.get("encode"),
        attention_ms=times_ms.get("attention"),
        repair_ms=times_ms.get("repair"),
    )


def _parts(policy: Policy, observation: Any) -> dict[str, Step]:
    """The whole step, and depth-image repair alone where a policy has it."""
    repair = getattr(policy, "repair", None)
    repairing: dict[str, Step] = {} if repair is None else {"repair": lambda: repair(observation)}
    return {"act": lambda: policy.act(observation), **repairing}


def _inner_parts(policy: Policy, observation: Any, device: str) -> dict[str, Step]:
    """The encoder and the attention of a policy alone, where it has them."""
    steps: dict[str, Step] = {}
    encode = getattr(policy, "encode", None)
    if encode is not None:
        rgb, pose = (torch.as_tensor(observation[k], device=device)[None] for k in ("rgb", "pose"))
        steps["encode"] = lambda: encode(rgb, pose)
    layers = _attention_layers(policy, observation)
    if layers:
        steps["attention"] = lambda: [layer.feature_map.attend(*qkv) for layer, qkv in layers]
    return steps


def _attention_layers(policy: Policy, seen: Any) -> list[tuple[RandomFeatureAttention, Any]]:
    """The attention layers that a decision calls, in turn, with the queries, keys and values that
    their feature maps get."""
    if not isinstance(policy, nn.Module):
        return []
    called: list[tuple[RandomFeatureAttention, Any]] = []

    def note(layer: Any, tokens: tuple[Any, ...]) -> None:
        called.append((layer, layer.project(*tokens[:3])))

    handles = [
        module.register_forward_pre_hook(note)
        for module in policy.modules()
        if isinstance(module, RandomFeatureAttention)
    ]
    try:
        with torch.no_grad():
            policy.act(seen)
    finally:
        for handle in handles:
            handle.remove()
    return called


def _medians_ms(
    steps: Mapping[Any, Step], device: str, calls: int, warm_up: int = 10
) -> dict[Any, float]:
    """Median time of each step, milliseconds, all of them run in turn."""
    timed = _gpu_ms if torch.device(device).type == "cuda" else _timed_ms
    with torch.no_grad():
        for step in steps.values():
            for _ in range(warm_up):
                step()
        times = [{name: timed(step) for name, step in steps.items()} for _ in range(calls)]
    return {name: statistics.median(one[name] for one in times) for name in steps}


def _timed_ms(step: Step, clock_ns: Callable[[], int] = time.perf_counter_ns) -> float:
    start = clock_ns()
    step()
    return (clock_ns() - start) / 1e6


def thread_ms(step: Step) -> float:
    """CPU time of this thread in `step`, milliseconds: other processes do not count."""
    return _timed_ms(step, time.thread_time_ns)


def _gpu_ms(step: Step) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


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
    titles = ["tokenising" if c == "tokens" else c for c in [*columns, "attention", "total"]]
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
