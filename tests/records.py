"""What a model logs, kept for a test to look at."""

from typing import Any

from stable_baselines3.common.logger import KVWriter


class Records(KVWriter):
    """Keeps every dump of an SB3 logger as one row."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        self.rows.append(dict(key_values))

    def close(self) -> None:
        pass
