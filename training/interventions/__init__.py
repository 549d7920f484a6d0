"""Tests whether a policy uses its images by replacing them and comparing rewards."""
