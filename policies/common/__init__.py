"""Code shared by all policies: observations, heads, building, the contract."""
