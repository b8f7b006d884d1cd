"""The bridge into rl-zoo3: the start-up hook's other end, the experiment manager, Optuna samplers, YAML checks."""
