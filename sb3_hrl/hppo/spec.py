"""What the zoo has to know about HPPO."""

from sb3_hrl.registry import AlgorithmSpec

SPEC = AlgorithmSpec(
    name="hppo",
    algorithm="sb3_hrl.hppo:HPPO",
    hyperparams="sb3_hrl:hyperparams/hppo.yml",
    sampler="sb3_hrl.zoo.samplers:sample_hppo_params",
    converter="sb3_hrl.zoo.samplers:convert_hppo_params",
)
