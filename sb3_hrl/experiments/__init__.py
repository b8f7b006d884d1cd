"""The ``sb3-hrl`` command."""
