"""The Implicit Attention Policy: tokens, selection by attention, a controller."""
