"""Whether a policy looks: its images are replaced, and rewards compared."""
