"""The Vision-Performer: a Transformer over an image's patches with attention by random features.

Hybrid Random Features (Choromanski et al. 2022), section 4.4 and appendix K.2, on the blocks of
Vision Transformers (Dosovitskiy et al. 2021): pre-norm attention and a two-layer network, each
added to its input. The robot's pose is a token among the patches, and is concatenated to the
output.
"""

import math

import torch
from torch import Tensor, nn

from attention import RandomFeatureAttention
from attention.components import component
from attention.exact import ExactSoftmax
from attention.matrix import kernel_estimates
from policies.common.feature_maps import fit_to_directions, map_options
from policies.common.own import own_map
from policies.implicit_attention.config import EXACT
from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig
from policies.vision_performer.patch_embedding import PatchEmbedding
from policies.vision_performer.waves import waves, waves_size

__all__ = ["ENCODER", "Block", "VisionPerformer", "draw"]

ENCODER = "encoder"
"""Component of a block's work outside attention's kernel."""
_DIAGNOSED_QUERIES = 64
_POSE_PERIOD = 8.0  # of the slowest wave of a pose, in standard deviations


def draw(module: nn.Module, generator: torch.Generator) -> None:
    """Initial parameters: matrices (out, in) of variance 1/in, biases 0; gains are left at 1."""
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            continue  # PyTorch would draw the numbers on the CPU
        if parameter.ndim == 2:
            std = 1 / math.sqrt(parameter.shape[1])
            nn.init.normal_(parameter, std=std, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class Block(nn.Module):
    """Attention among the tokens, unless the settings have none; then a small network for each."""

    def __init__(self, config: VisionPolicyConfig | PooledPolicyConfig, index: int) -> None:
        super().__init__()
        dim = config.embed_dim
        self.attention: RandomFeatureAttention | None = None
        if config.attend:
            self.norm = nn.LayerNorm(dim)
            self.attention = _attention(config, index)
        self.mlp_norm = nn.LayerNorm(dim)
        hidden = max(1, round(config.mlp_ratio * dim))
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, dim) -> the same."""
        if self.attention is not None:
            x = self.norm(tokens)
            tokens = tokens + self.attention(x, x, x)[0]
        refined: Tensor = tokens + self.mlp(self.mlp_norm(tokens))
        return refined

    def fit(self, tokens: Tensor) -> None:
        """Fit attention's map, head by head, to the queries and keys of (batch, tokens, dim)."""
        if self.attention is not None:
            x = self.norm(tokens)
            self.attention.fit(x, x)

    def attention_matrix(self, tokens: Tensor) -> Tensor:
        """Attention weights of each token (row) to each (column): (batch, heads, L, L).

        Without attention it is the identity: (batch, 1, L, L).
        """
        if self.attention is None:
            return torch.eye(tokens.shape[1]).to(tokens).expand(len(tokens), 1, -1, -1)
        x = self.norm(tokens)
        weights: Tensor = self.attention(x, x, x, need_weights=True, average_attn_weights=False)[1]
        return weights


def _attention(
    config: VisionPolicyConfig | PooledPolicyConfig, index: int
) -> RandomFeatureAttention:
    """The feature map of block number `index`."""
    made = RandomFeatureAttention(
        config.embed_dim,
        config.heads,
        config.feature_map if config.feature_map == EXACT else own_map(config.feature_map),
        config.num_features,
        batch_first=True,
        qk_length=config.qk_length,
        seed=config.feature_seed + index,
        **({} if config.feature_map == EXACT else map_options(config)),
    )
    if config.qk_length is not None and not isinstance(made.feature_map, ExactSoftmax):
        fit_to_directions(made.feature_map, config.qk_length)
    return made


class VisionPerformer(nn.Module):
    """Image and pose to one vector, once an observation.

    Args:
        height, width: of the images, pixels.
        pose: length of the pose vector.
        config: its settings.
        generator: source of the initial parameters.

    Raises:
        ValueError: if the patches do not divide the image.
    """

    def __init__(
        self,
        height: int,
        width: int,
        pose: int,
        config: VisionPolicyConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        dim = config.embed_dim
        patches = PatchEmbedding(height, width, config.image_scale, config.patch, dim, generator)
        # Constructors draw from the global generator: restore its state, then `draw` draws again.
        with torch.random.fork_rng(devices=[]):
            self._octaves = config.pose_octaves
            coded = pose * waves_size(config.pose_octaves)
            self.pose = nn.Sequential(nn.Linear(coded, dim), nn.GELU(), nn.Linear(dim, dim))
            self.blocks = nn.ModuleList(Block(config, i) for i in range(config.depth))
            self.norm = nn.LayerNorm(dim)
            self.read = nn.Linear(dim, config.patch_readout) if config.patch_readout else None
            seen = patches.count * config.patch_readout or dim
            self.pool = nn.Linear(seen + dim + coded, config.context_dim)
        draw(self, generator)
        self.patches = patches

    def forward(self, rgb: Tensor, pose: Tensor) -> Tensor:
        """(batch, height, width, 3) uint8 and normalised pose (batch, k) -> (batch, context)."""
        coded = self._coded(pose)
        tokens = self._tokens(rgb, coded)
        with component(ENCODER):
            for block in self.blocks:
                tokens = block(tokens)
            tokens = self.norm(tokens)
            patches, pose_token = tokens[:, :-1], tokens[:, -1]
            seen = patches.mean(1) if self.read is None else self.read(patches).flatten(1)
            context: Tensor = self.pool(torch.cat((seen, pose_token, coded), -1))
            return context

    def tokens(self, rgb: Tensor, pose: Tensor) -> Tensor:
        """Input of the first block: (batch, patches + 1, dim), the pose last."""
        return self._tokens(rgb, self._coded(pose))

    def _tokens(self, rgb: Tensor, coded: Tensor) -> Tensor:
        with component("tokens"):
            return torch.cat((self.patches(rgb), self.pose(coded).unsqueeze(1)), 1)

    def _coded(self, pose: Tensor) -> Tensor:
        """Normalised pose (batch, k) -> its waves, (batch, k (2 octaves + 1))."""
        with component("tokens"):
            return waves(pose, self._octaves, _POSE_PERIOD).flatten(1)

    @torch.no_grad()
    def fit(self, rgb: Tensor, pose: Tensor) -> None:
        """Fit each block's feature map in turn to the output of the fitted blocks before it."""
        tokens = self.tokens(rgb, pose)
        for block in self.blocks:
            assert isinstance(block, Block)
            block.fit(tokens)
            tokens = block(tokens)

    def received(self, rgb: Tensor, pose: Tensor) -> Tensor:
        """Attention that each patch receives in the last block, (batch, rows, columns).

        Shares of the total, over all tokens and heads; estimates below 0 count as 0.
        """
        tokens = self.tokens(rgb, pose)
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        last = self.blocks[-1]
        assert isinstance(last, Block)
        sums = last.attention_matrix(tokens).mean(1).sum(-2)[:, :-1].clamp_min(0)
        shares = sums / sums.sum(-1, keepdim=True).clamp_min(torch.finfo(sums.dtype).tiny)
        return shares.view(-1, *self.patches.grid)

    def diagnose(self, rgb: Tensor, pose: Tensor) -> list[dict[str, float]]:
        """Diagnostics of attention's estimates for each block and head; see `head_diagnoses`."""
        tokens = self.tokens(rgb, pose)
        found = []
        for i, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            found += [{"block": i, **entry} for entry in head_diagnoses(block, tokens)]
            tokens = block(tokens)
        return found


def head_diagnoses(block: Block, tokens: Tensor) -> list[dict[str, float]]:
    """For each head of a block with attention, over a batch and up to 64 queries a sequence:

    `smallest_denominator`, as a share of the sum of absolute kernel estimates (1 where none is
    negative); `raised_share` of denominators below the floor of `attention.denominators`;
    `negative_share` of kernel estimates; `non_finite` numbers among queries, keys, values and
    estimates.
    """
    if block.attention is None:
        return []
    x = block.norm(tokens)
    q, k, v = block.attention.project(x, x, x)
    features = block.attention.feature_map
    rows = torch.linspace(0, q.shape[-2] - 1, min(q.shape[-2], _DIAGNOSED_QUERIES))
    index = rows.round().long().to(q.device)
    if isinstance(features, ExactSoftmax):
        kernel = (q[..., index, :] @ k.mT).exp()
        denominator = floor = kernel.sum(-1, keepdim=True)
    else:
        estimates = kernel_estimates(features, q, k, index, False, None)
        kernel, denominator, floor = estimates.kernel, estimates.denominator, estimates.floored
    relative = denominator / kernel.abs().sum(-1, keepdim=True)
    return [
        {
            "head": head,
            "smallest_denominator": float(relative[:, head].min()),
            "raised_share": float((denominator < floor)[:, head].double().mean()),
            "negative_share": float((kernel < 0)[:, head].double().mean()),
            "non_finite": sum(int((~t[:, head].isfinite()).sum()) for t in (q, k, v, kernel)),
        }
        for head in range(q.shape[1])
    ]
