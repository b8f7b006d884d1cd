"""The zoo-format hyperparameter files, one for each algorithm."""
