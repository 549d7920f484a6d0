"""Former path of `policies.implicit_attention.extractor`."""

from policies.implicit_attention.extractor import *  # noqa: F403
