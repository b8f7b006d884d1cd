"""First-party plug-ins. Each registers by entry point, as a stranger's package would; nothing in ``sb3_hrl`` imports them."""
