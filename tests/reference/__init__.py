"""Slow twins: each says in the plainest way what a fast piece of the package must compute."""
