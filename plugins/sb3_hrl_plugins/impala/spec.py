"""What the zoo has to know about IMPALA."""

from sb3_hrl.registry import AlgorithmSpec

SPEC = AlgorithmSpec(
    name="impala",
    algorithm="sb3_hrl_plugins.impala:IMPALA",
    hyperparams="sb3_hrl:hyperparams/impala.yml",
    sampler="sb3_hrl_plugins.impala.samplers:sample_impala_params",
    converter="sb3_hrl_plugins.impala.samplers:convert_impala_params",
)
