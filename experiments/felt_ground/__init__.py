"""Felt ground: memories from appearance to what a foot felt, compared without physics."""
