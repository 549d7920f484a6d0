"""Tokens per second of `generate` in a Hugging Face model: a cache of keys and values against a
state of constant size.

    python -m benchmarks.generate_speed [--lengths 1024 8192 32768] [--out DIR]

The model is GPT-2 with random weights (4 layers, 4 heads of 64 numbers), batch 1, one thread. Both
use `generate` of transformers: softmax attention with its `DynamicCache`, and positive features
with m random vectors by `attention.integrations.replace`. The time of a token is the median over
those after the first, the time of the prompt that until the first token; both are CPU times.
"""

import statistics
import time
from typing import Any

import torch

from attention import integrations
from experiments import figure
from experiments.figure import Arguments, Lines, Rows
from training.io.config import UserError

COLUMNS = {
    "prompt": "{length:,}", "attention": "{attention}", "prompt, s": "{prompt_s:.2f}",
    "ms a token": "{token_ms:.2f}", "tokens/s": "{tokens_per_s:.0f}", "cache, MB": "{cache_mb:.2f}",
}  # fmt: skip
WIDTH, LAYERS, HEADS = 256, 4, 4


class _Clock:
    """A streamer that notes the time of each token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(time.process_time())

    def end(self) -> None:
        """Nothing is left to write."""


def _bytes(cache: Any) -> int:
    """Memory of a cache's tensors."""
    tensors: list[Any] = []
    for layer in cache.layers:
        state = getattr(layer, "state", None)
        tensors += [layer.keys, layer.values] if state is None else [*state.sums, *state.keys]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def measure(arguments: Arguments) -> dict[str, Any]:
    """Each length and kind of attention. Raises UserError without transformers."""
    try:
        import transformers
    except ModuleNotFoundError:
        message = "benchmarks.generate_speed needs transformers: pip install transformers"
        raise UserError(message) from None
    torch.set_num_threads(1)
    tokens, m = arguments.tokens, arguments.num_features
    results: Rows = []
    for length in arguments.lengths:
        config = transformers.GPT2Config(
            vocab_size=1000,
            n_positions=length + tokens,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            bos_token_id=0,
            eos_token_id=None,
        )
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()
        prompt = torch.randint(1000, (1, length), generator=torch.Generator().manual_seed(0))
        for attention in ("cache", f"state, m = {m}"):
            if attention != "cache":
                integrations.replace(model, "positive", num_features=m)
            clock = _Clock()
            found = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=tokens,
                pad_token_id=0,
                return_dict_in_generate=True,
                streamer=clock,
            )
            cache = getattr(found, "cache", None) or found.past_key_values
            begin, first, *later = clock.times
            waits = [b - a for a, b in zip([first, *later], later, strict=False)]
            seconds = statistics.median(waits)
            results.append(
                {
                    "length": length,
                    "attention": attention,
                    "prompt_s": first - begin,
                    "token_ms": 1000 * seconds,
                    "tokens_per_s": 1 / seconds,
                    "cache_mb": _bytes(cache) / 1e6,
                }
            )
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {"tokens": tokens, "num_features": m, "versions": versions, "results": results}


def show(results: dict[str, Any]) -> Lines:
    """A row for each prompt and kind of attention."""
    yield from figure.table(results["results"], COLUMNS, 8, -16, 10, 11, 9, 10)


main = figure.command(
    measure, show, None,
    figure.option("--lengths", type=int, nargs="+", default=[1024, 8192, 32768], help="prompts"),
    figure.option("--tokens", type=int, default=32, help="generated tokens (default 32)"),
    figure.option("--num-features", type=int, default=256, help="m (default 256)"),
)  # fmt: skip
