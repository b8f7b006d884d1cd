"""The native core's random numbers, readable: ``native/include/sb3_hrl/philox.hpp`` is the fast twin."""

import math
from enum import IntEnum

_WORD = 2**32


class RandomPurpose(IntEnum):
    """What a stream of random numbers is for: streams of the same seed and index never meet."""

    reset = 0
    action = 1
    substep = 2


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """
    One block of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    :param counter: four words of 32 bits
    :param key: two words of 32 bits
    :return: four random words that depend on the counter and the key alone
    """
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = (
            second // _WORD ^ counter[1] ^ key[0],
            second % _WORD,
            first // _WORD ^ counter[3] ^ key[1],
            first % _WORD,
        )
        key = ((key[0] + 0x9E3779B9) % _WORD, (key[1] + 0xBB67AE85) % _WORD)
    return counter


class RandomStream:
    """
    A stream of random numbers that is fixed by seed, index and purpose. Every draw takes one block, so ``n_drawn`` is the
    whole state.

    :param seed: from 0 to 2**64 - 1
    :param index: the environment's
    :param purpose: what it is for
    :param n_drawn: how many numbers were drawn before
    """

    def __init__(self, seed: int, index: int = 0, purpose: RandomPurpose = RandomPurpose.reset, n_drawn: int = 0) -> None:
        self.seed, self.index, self.purpose, self.n_drawn = seed, index, purpose, n_drawn

    @property
    def state(self) -> list[int]:
        """All that decides what comes next."""
        return [self.seed, self.index, int(self.purpose), self.n_drawn]

    @classmethod
    def from_state(cls, state: list[int]) -> "RandomStream":
        """
        :param state: of another stream
        :return: one that goes on as that one would
        """
        return cls(state[0], state[1], RandomPurpose(state[2]), state[3])

    def _next(self) -> tuple[float, float]:
        counter = (self.n_drawn % _WORD, self.n_drawn // _WORD, self.index, int(self.purpose))
        block = philox(counter, (self.seed % _WORD, self.seed // _WORD))
        self.n_drawn += 1
        first, second = ((high * _WORD + low) >> 11 for low, high in (block[:2], block[2:]))
        return first * 2.0**-53, second * 2.0**-53

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """
        :param low: the smallest number
        :param high: the limit above
        :return: uniform in [low, high); what rounds up to ``high`` becomes the number below it
        """
        value = low + (high - low) * self._next()[0]
        return value if value < high or low >= high else math.nextafter(high, low)

    def normal(self) -> float:
        """
        :return: standard normal, by Box and Muller
        """
        first, second = self._next()
        return math.sqrt(-2.0 * math.log(1.0 - first)) * math.cos(6.283185307179586 * second)
