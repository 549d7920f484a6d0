"""Parts of a user's own, as in a package beside this one: policies, a controller, a feature map."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

from attention import FeatureMap
from policies.common.normaliser import RunningNormaliser


class Bare(nn.Module):
    """No more than must be: the mean brightness of each column of (16, 20, 3), and a line."""

    def __init__(self, observation_space, action_space, gain=1.0):
        super().__init__()
        assert observation_space.shape == (16, 20, 3)
        self._space, self.gain = action_space, gain
        self.line = nn.Linear(20, 1)

    def reset(self):
        pass

    def act(self, observation):
        with torch.no_grad():
            action = self.decided(torch.from_numpy(observation)[None])[0]
        return action.clamp(-1, 1).numpy()

    def decided(self, images):
        return self.gain * self.line(images.float().mean((1, 3)) / 255 - 0.2)


class Cloned(Bare):
    """A policy that can also be cloned."""

    def loss(self, observations, actions, generator):
        return mse_loss(self.decided(observations["observation"]), actions)


class Normalised(Cloned):
    """A policy that is also normalised by the training observations."""

    def __init__(self, observation_space, action_space, **options):
        super().__init__(observation_space, action_space, **options)
        self.normaliser = RunningNormaliser(20)

    def measured(self, observation):
        return observation.mean((0, 2)).astype("float64")


class Counting(nn.Module):
    """A controller that remembers how many steps it has seen."""

    state_size = 1

    def __init__(self, inputs, outputs):
        super().__init__()
        self.line = nn.Linear(inputs, outputs)

    def forward(self, x, state):
        return self.line(x), state + 1


class Line(nn.Linear):
    """A controller that is a line."""


class Squares(FeatureMap):
    """1 + x.y: the positive kernel of unit vectors."""

    own_kernel = True

    def __init__(self, dim, num_features):
        super().__init__(dim, num_features)

    @property
    def output_dim(self):
        return self.dim + 1

    def queries(self, x):
        return torch.cat((torch.ones_like(x[..., :1]), x), -1)


class Wide(Bare):
    """A policy of a given size."""

    def __init__(self, observation_space, action_space, width=20):
        super().__init__(observation_space, action_space)
        self.more = nn.Linear(width, 1)


class Deaf(nn.Module):
    """A policy without `act`."""

    def __init__(self, observation_space, action_space):
        super().__init__()

    def reset(self):
        pass


class Short(nn.Linear):
    """A controller that always returns three numbers."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, 3)


def make_bare(observation_space, action_space):
    """A function in place of a class."""
    return Bare(observation_space, action_space, gain=2.0)


NOT_A_POLICY = 3
