"""Former path of `policies.common.building`."""

from policies.common.building import *  # noqa: F403
from policies.common.kinds import CONFIGS as CONFIGS
