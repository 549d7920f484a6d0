"""The Vision-Performer: a Transformer over an image's patches with attention by random features.

Hybrid Random Features (Choromanski et al. 2022), section 4.4 and appendix K.2, on the blocks of
Vision Transformers (Dosovitskiy et al. 2021): pre-norm attention and a two-layer network, each
added to its input. The robot's pose is a token among the patches, and is concatenated to the
output.

Images stay bytes as long as possible: a 500 x 500 image is 0.75 MB as bytes and 3 MB as floats.
"""

import math

import torch
from torch import Tensor, nn

from attention import RandomFeatureAttention
from attention.components import component
from attention.exact import ExactSoftmax
from attention.matrix import kernel_estimates
from attention.tracing import is_exporting
from policies.common.feature_maps import fit_to_directions, map_options
from policies.common.limits import reserve
from policies.common.plugins import custom_map
from policies.common.settings import EXACT
from policies.vision_performer.config import PooledPolicyConfig, VisionPolicyConfig

ENCODER = "encoder"
"""Component of a block's work outside attention's kernel."""
_DIAGNOSED_QUERIES = 64
_POSE_PERIOD = 8.0  # of the slowest wave of a pose, in standard deviations
_MIDDLE = 128
"""A byte less this, over this, lies in [-1, 1)."""
_POSITION_SCALE = 0.5


def waves(x: Tensor, octaves: int, period: float = 2.0) -> Tensor:
    """x itself, and its sine and cosine with the periods period / 2^k for k < octaves, so that
    a small network can represent it precisely (Tancik et al. 2020, "Fourier Features Let Networks
    Learn High Frequency Functions in Low Dimensional Domains").

    (...) -> (..., 2 octaves + 1).
    """
    x = x.unsqueeze(-1)
    angle = x * (2 * math.pi / period * 2 ** torch.arange(octaves, device=x.device))
    return torch.cat((x, angle.sin(), angle.cos()), -1)


def waves_size(octaves: int) -> int:
    """Number of outputs of `waves` per input."""
    return 2 * octaves + 1


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
        config.feature_map if config.feature_map == EXACT else custom_map(config.feature_map),
        config.num_features,
        batch_first=True,
        qk_length=config.qk_length,
        seed=config.feature_seed + index,
        **({} if config.feature_map == EXACT else map_options(config)),
    )
    if config.qk_length is not None and not isinstance(made.feature_map, ExactSoftmax):
        fit_to_directions(made.feature_map, config.qk_length)
    return made


class Encoder(nn.Module):
    """Transformer blocks over the tokens that a subclass makes of its inputs."""

    blocks: nn.ModuleList

    def _add_blocks(self, config: VisionPolicyConfig | PooledPolicyConfig) -> None:
        self.blocks = nn.ModuleList(Block(config, i) for i in range(config.depth))
        self.norm = nn.LayerNorm(config.embed_dim)
        readout = config.patch_readout
        self.read = nn.Linear(config.embed_dim, readout) if readout else None

    def tokens(self, images: Tensor, vector: Tensor, /) -> Tensor:
        """Input of the first block, (batch, tokens, dim)."""
        raise NotImplementedError

    def _pooled(self, encoded: Tensor) -> Tensor:
        """Read out the images' encoded tokens, (batch, tokens, dim) -> (batch, k)."""
        return encoded.mean(1) if self.read is None else self.read(encoded).flatten(1)

    @torch.no_grad()
    def fit(self, images: Tensor, vector: Tensor) -> None:
        """Fit each block's feature map in turn to the output of the fitted blocks before it."""
        tokens = self.tokens(images, vector)
        for block in self.blocks:
            assert isinstance(block, Block)
            block.fit(tokens)
            tokens = block(tokens)

    def received(self, count: int, images: Tensor, vector: Tensor) -> Tensor:
        """Attention that each of the first `count` tokens receives in the last block, (batch,
        count): shares of the total, from all tokens and heads; estimates below 0 count as 0."""
        tokens = self.tokens(images, vector)
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        last = self.blocks[-1]
        assert isinstance(last, Block)
        sums = last.attention_matrix(tokens).mean(1).sum(-2)[:, :count].clamp_min(0)
        return sums / sums.sum(-1, keepdim=True).clamp_min(torch.finfo(sums.dtype).tiny)


class VisionPerformer(Encoder):
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
            self._add_blocks(config)
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
            context: Tensor = self.pool(torch.cat((self._pooled(patches), pose_token, coded), -1))
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


class PatchEmbedding(nn.Module):
    """Cuts images into patches and maps each linearly to a token with a position embedding.

    Pixels are centred: a byte v counts as (v - 128) / 128. Places are learned and start as
    sinusoids of row and column.

    Args:
        height, width: of the images, pixels; 3 colours.
        scale: side of the squares of pixels that are averaged first.
        patch: rows and columns of a patch, in averaged pixels.
        dim: width of a token.
        generator: source of the initial parameters.

    Raises:
        ValueError: if squares or patches do not divide the image.
    """

    def __init__(
        self,
        height: int,
        width: int,
        scale: int,
        patch: tuple[int, int],
        dim: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if height % scale or width % scale:
            raise ValueError(f"image_scale must divide the {height} x {width} image, got {scale}")
        height, width = height // scale, width // scale
        rows, columns = patch
        if height % rows or width % columns:
            raise ValueError(
                f"patch must be [rows, columns] that divide the {height} x {width} image, "
                f"got [{rows}, {columns}]"
            )
        self.scale, self.patch = scale, patch
        self.grid = (height // rows, width // columns)
        self.count = self.grid[0] * self.grid[1]
        inputs = rows * columns * 3
        reserve(dim, inputs)
        self.weight = nn.Parameter(
            torch.randn(dim, inputs, generator=generator) / math.sqrt(inputs)
        )
        self.bias = nn.Parameter(torch.zeros(dim))
        self.positions = nn.Parameter(_POSITION_SCALE * sinusoidal_positions(self.grid, dim))

    def forward(self, rgb: Tensor) -> Tensor:
        """(batch, height, width, 3) uint8 -> tokens (batch, patches, dim), row by row."""
        patches, unit = self.patches(rgb)
        tokens = torch.addmm(self.bias, patches, self.weight.t(), alpha=1 / unit)
        return tokens.view(len(rgb), self.count, -1) + self.positions

    def patches(self, rgb: Tensor) -> tuple[Tensor, float]:
        """Centred pixels (batch * patches, rows * columns * 3), and their value for 1."""
        rows, columns = self.patch
        shape = len(rgb), self.count, rows * columns * 3
        unit = float(_MIDDLE * self.scale**2)
        if torch.compiler.is_compiling() and is_exporting():
            return self._cut(rgb).to(self._dtype(rgb)).reshape(-1, shape[-1]), unit
        out = torch.empty(shape, dtype=self._dtype(rgb), device=rgb.device)
        # One image at a time stays in a processor's cache: three times as fast as all at once.
        step = 1 if rgb.device.type == "cpu" else len(rgb)
        for part, images in zip(out.split(step), rgb.split(step), strict=True):
            cut = self._cut(images)
            part.view(cut.shape).copy_(cut)
        return out.flatten(0, 1), unit

    def _cut(self, rgb: Tensor) -> Tensor:
        """Centred pixels, whole numbers, (batch, down, across, rows, columns * 3)."""
        (down, across), (rows, columns) = self.grid, self.patch
        if self.scale == 1 and is_exporting():  # ONNX reads no bytes as others
            centred = rgb.to(torch.int16) - _MIDDLE
        elif self.scale == 1:
            centred = rgb.bitwise_xor(_MIDDLE).view(torch.int8)
        else:
            centred = _square_sums(rgb, self.scale).sub_(_MIDDLE * self.scale**2)
        return centred.reshape(len(rgb), down, rows, across, columns * 3).transpose(2, 3)

    def _dtype(self, like: Tensor) -> torch.dtype:
        """The dtype of products: bytes are exact in every float type, their sums in float32."""
        device = like.device.type
        if self.scale > 1:
            return self.weight.dtype
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
        return self.weight.dtype


def _square_sums(rgb: Tensor, scale: int) -> Tensor:
    """(batch, height, width, 3) -> sums over squares (batch, height / scale, width / scale, 3).

    Slices are added one after the other: five times as fast as `sum` over short dimensions.
    """
    batch, height, width, colours = rgb.shape
    whole = torch.int16 if 255 * scale**2 < 2**15 else torch.int32
    bands = rgb.view(batch, height // scale, scale, width * colours)
    rows = bands[:, :, 0].to(whole)
    for k in range(1, scale):
        rows += bands[:, :, k].to(whole)
    squares = rows.view(batch, height // scale, width // scale, scale, colours)
    sums = squares[..., 0, :] + squares[..., 1, :]
    for k in range(2, scale):
        sums += squares[..., k, :]
    return sums


def sinusoidal_positions(grid: tuple[int, int], dim: int) -> Tensor:
    """Places of patches, (rows * columns, dim): sines and cosines of the row, then of the column.

    Periods fall geometrically from twice the grid to two patches (Vaswani et al. 2017, section 3.5,
    in two dimensions). `dim` is a multiple of 4.
    """
    codes = []
    for count in grid:
        frequency = torch.logspace(0, math.log2(max(count, 2)), dim // 4, base=2.0) * math.pi
        angle = (torch.arange(count) + 0.5).unsqueeze(-1) / count * frequency
        codes.append(torch.cat((angle.sin(), angle.cos()), -1))
    row, column = codes
    rows = row.unsqueeze(1).expand(-1, grid[1], -1)
    columns = column.unsqueeze(0).expand(grid[0], -1, -1)
    return torch.cat((rows, columns), -1).reshape(grid[0] * grid[1], dim)
