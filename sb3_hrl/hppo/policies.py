"""The policies of HPPO: SB3's own, under the names that SB3 gives them, and two for images that stay as they are."""

from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy, MultiInputActorCriticPolicy

from sb3_hrl.cnn import ImpalaCnnPolicy, NatureCnnPolicy

MlpPolicy = ActorCriticPolicy
CnnPolicy = ActorCriticCnnPolicy
MultiInputPolicy = MultiInputActorCriticPolicy

__all__ = ["CnnPolicy", "ImpalaCnnPolicy", "MlpPolicy", "MultiInputPolicy", "NatureCnnPolicy"]
