"""Heads: from the encoder's output to actions, by energies or by regression.

Implicit behavioural cloning (Florence et al. 2021, section 2 and appendix B): the energy of the
demonstrated action is lowered against that of uniform negatives by InfoNCE (van den Oord et al.
2018), the cross-entropy of softmax(-energy) to the demonstrated one. Fusion is late: a head's
first layer is a sum of parts, and the part of the context is computed once for all candidates.

Actions are normalised to [-1, 1]. Heads compute in full precision, autocast or not: bfloat16
resolves actions only to 0.4 %.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from attention.precision import full_precision
from policies.common.limits import reserve
from policies.vision_performer.action_search import langevin_chain, uniform
from policies.vision_performer.encoder import waves, waves_size

_OCTAVES = 4  # of waves with which energies of one number are sharp
_GRADIENT_MARGIN = 1.0


def info_nce(energies: Tensor) -> Tensor:
    """Mean cross-entropy of softmax(-energies) to the first entry; energies (..., k)."""
    return (energies[..., 0] + (-energies).logsumexp(-1)).mean()


def blurred(actions: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Actions with Gaussian noise of this standard deviation.

    The density of a dimension that never varies would become ever sharper in training, until no
    candidate of a search hits its peak; with noise no peak is narrower than the noise.
    """
    if noise == 0:
        return actions
    drawn = torch.randn(actions.shape, generator=generator, device=generator.device)
    return actions + noise * drawn.to(actions)


class AutoregressiveEnergy(nn.Module):
    """One energy per dimension, E_i(context, a_1..a_(i-1), a_i): n small networks, batched.

    The product of softmax(-E_i) over dimensions is a density of the whole action, and every search
    is in one dimension (Florence et al. 2021, appendix B.2).

    Args:
        context: width of the context.
        size: n, dimensions of the action.
        hidden: widths of each dimension's hidden layers.
        negatives: number of uniform values of each dimension beside the demonstrated one.
        noise: standard deviation of what is added to demonstrated actions, see `blurred`.
        generator: source of the initial parameters.
    """

    before: Tensor

    def __init__(
        self,
        context: int,
        size: int,
        hidden: tuple[int, ...],
        negatives: int,
        noise: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.size, self.negatives, self.noise = size, negatives, noise
        first = hidden[0]
        self.context = nn.Parameter(_normal((context, size * first), context, generator))
        self.bias = nn.Parameter(torch.zeros(size * first))
        self.earlier = nn.Parameter(_normal((size, size, first), size, generator))
        coded = waves_size(_OCTAVES)
        self.candidate = nn.Parameter(_normal((size, coded, first), coded, generator))
        widths = (*hidden, 1)
        self.weights = nn.ParameterList(
            _normal((size, inputs, outputs), inputs / 2, generator)
            for inputs, outputs in pairwise(widths)
        )
        self.biases = nn.ParameterList(torch.zeros(size, 1, outputs) for outputs in widths[1:])
        before = torch.ones(size, size).triu(1).unsqueeze(-1)  # [j, i]: j comes before i
        self.register_buffer("before", before, persistent=False)

    def context_part(self, context: Tensor) -> Tensor:
        """The context's part of the first layer: (batch, c) -> (n, batch, 1, first)."""
        part = torch.addmm(self.bias, context, self.context)
        return part.view(len(context), self.size, 1, -1).transpose(0, 1)

    def energies(self, part: Tensor, actions: Tensor, candidates: Tensor) -> Tensor:
        """Energies of candidates for every dimension, given the earlier dimensions of `actions`.

        part (n, batch, 1, first), actions (batch, n), candidates (n, batch, k) -> (n, batch, k).
        """
        size, batch, count = candidates.shape
        masked = (self.earlier * self.before).flatten(1)
        earlier = (actions @ masked).view(batch, size, 1, -1).transpose(0, 1)
        x = (waves(candidates, _OCTAVES).flatten(1, 2) @ self.candidate).view(
            size, batch, count, -1
        )
        x = (x + (part + earlier)).flatten(1, 2)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = torch.baddbmm(bias, functional.relu(x), weight)
        return x.view(size, batch, count)

    def energy(self, i: int, part: Tensor, chosen: Tensor, candidates: Tensor) -> Tensor:
        """Energies (batch, k) of candidates (batch, k) for dimension i, given (batch, i) before."""
        earlier = (chosen @ self.earlier[:i, i]).unsqueeze(1)
        x = waves(candidates, _OCTAVES) @ self.candidate[i] + (part[i] + earlier)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = functional.relu(x) @ weight[i] + bias[i]
        return x.squeeze(-1)

    def loss(self, context: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """InfoNCE, mean over dimensions; context (batch, c), demonstrated actions (batch, n)."""
        with full_precision(context):
            part = self.context_part(context.to(self.bias.dtype))
            actions = blurred(actions.to(self.bias.dtype), self.noise, generator)
            shape = (self.size, len(actions), self.negatives)
            negatives = uniform(shape, generator, actions)
            candidates = torch.cat((actions.t().unsqueeze(-1), negatives), -1)
            return info_nce(self.energies(part, actions, candidates))


class _Layers(nn.Module):
    """Linear layers with ReLU between them, as plain tensors."""

    def _add_layers(
        self, widths: tuple[int, ...], variance: float, generator: torch.Generator
    ) -> None:
        """Initial weights have this variance times one over their inputs; biases are 0."""
        self.weights = nn.ParameterList(
            _normal((inputs, outputs), inputs / variance, generator)
            for inputs, outputs in pairwise(widths)
        )
        self.biases = nn.ParameterList(torch.zeros(outputs) for outputs in widths[1:])


class JointEnergy(_Layers):
    """One energy of the whole action, E(context, a).

    Args:
        context: width of the context.
        size: n, dimensions of the action.
        hidden: widths of the hidden layers.
        negatives: number of uniform actions beside the demonstrated one.
        noise: standard deviation of what is added to demonstrated actions, see `blurred`.
        chain_steps: steps of a Langevin chain that moves negatives to lower energies first;
            gradients above 1 are then penalised (Florence et al. 2021, appendix B.3.1). 0: none.
        generator: source of the initial parameters.
    """

    def __init__(
        self,
        context: int,
        size: int,
        hidden: tuple[int, ...],
        negatives: int,
        noise: float,
        chain_steps: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.size, self.negatives, self.noise = size, negatives, noise
        self.chain_steps = chain_steps
        self.context = nn.Parameter(_normal((context, hidden[0]), context, generator))
        self.bias = nn.Parameter(torch.zeros(hidden[0]))
        self.candidate = nn.Parameter(_normal((size, hidden[0]), size, generator))
        self._add_layers((*hidden, 1), 2, generator)

    def context_part(self, context: Tensor) -> Tensor:
        """The context's part of the first layer: (batch, c) -> (batch, 1, first)."""
        return torch.addmm(self.bias, context, self.context).unsqueeze(1)

    def energy(self, part: Tensor, candidates: Tensor) -> Tensor:
        """Energies (batch, k) of candidates (batch, k, n)."""
        x = part + candidates @ self.candidate
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = functional.relu(x) @ weight + bias
        return x.squeeze(-1)

    def loss(self, context: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """InfoNCE; context (batch, c), demonstrated actions (batch, n)."""
        with full_precision(context):
            part = self.context_part(context.to(self.bias.dtype))
            actions = blurred(actions.to(self.bias.dtype), self.noise, generator).unsqueeze(1)
            shape = (len(actions), self.negatives, self.size)
            negatives = uniform(shape, generator, actions)
            if not self.chain_steps:
                return info_nce(self.energy(part, torch.cat((actions, negatives), 1)))
            fixed = part.detach()
            negatives = langevin_chain(
                lambda a: self.energy(fixed, a), negatives, self.chain_steps, generator
            )
            with torch.enable_grad():  # the penalty needs gradients even if they are disabled
                candidates = torch.cat((actions, negatives), 1).requires_grad_()
                energies = self.energy(part, candidates)
                (slope,) = torch.autograd.grad(energies.sum(), candidates, create_graph=True)
                excess = (slope.abs().amax(-1) - _GRADIENT_MARGIN).clamp_min(0)
                return info_nce(energies) + excess.square().mean()


class Regression(_Layers):
    """The explicit baseline: squared errors of the normalised action (Florence et al. 2021,
    section 4)."""

    def __init__(
        self, context: int, size: int, hidden: tuple[int, ...], generator: torch.Generator
    ) -> None:
        super().__init__()
        self._add_layers((context, *hidden, size), 1, generator)

    def forward(self, context: Tensor) -> Tensor:
        """(batch, c) -> actions (batch, n)."""
        x = context
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = (x if x is context else functional.relu(x)) @ weight + bias
        return x

    def loss(self, context: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """Mean squared error; the generator is not used."""
        with full_precision(context):
            dtype = self.biases[0].dtype
            return functional.mse_loss(self(context.to(dtype)), actions.to(dtype))


def _normal(shape: tuple[int, ...], inputs: float, generator: torch.Generator) -> Tensor:
    reserve(*shape)
    return torch.randn(shape, generator=generator) / math.sqrt(inputs)
