"""Whether a policy looks: pictures are changed, and rewards compared."""
