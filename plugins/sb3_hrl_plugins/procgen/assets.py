"""
Importing this loads Procgen's pictures, all games', into the process, which takes more than a second. For servers whose forks
then have them.
"""

from sb3_hrl_plugins.procgen.env_ids import GAMES
from sb3_hrl_plugins.procgen.game import Game

Game(GAMES[0]).make_batch(1, seed=None).close()
