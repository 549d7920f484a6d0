"""Feature maps compared at equal cost, and on data far from zero."""
