"""Former path of `policies.common.contract`."""

from policies.common.contract import *  # noqa: F403
