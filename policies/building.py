"""Former path of `policies.common.building`."""

from policies.common.building import *  # noqa: F403
