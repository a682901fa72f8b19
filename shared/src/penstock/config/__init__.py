"""Settings: `penstock.toml`, then environment, then flags; checked before anything starts."""

from penstock.config.load import ConfigError, NoBrokerKnown, load
from penstock.config.profiles import Pool, Profile
from penstock.config.settings import Settings

__all__ = ["ConfigError", "NoBrokerKnown", "Pool", "Profile", "Settings", "load"]
