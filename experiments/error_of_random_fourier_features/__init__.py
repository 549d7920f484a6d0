"""Figures of On the Error of Random Fourier Features (Sutherland and Schneider 2015)."""
