"""Weather, as the worker's services import it; it lives outside because the relay needs it, too."""

from stagedoor.weather import FIRST_PAUSE_S, LONGEST_PAUSE_S, NOTABLE_S, Weather

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "NOTABLE_S", "Weather"]
