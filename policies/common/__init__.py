"""What all policies share: observations, heads, building, the contract."""
