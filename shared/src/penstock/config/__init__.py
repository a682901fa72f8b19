"""Settings: `penstock.toml`, then environment, then flags; checked before anything starts."""

from penstock.config.load import ConfigError, load
from penstock.config.profiles import Pool, Profile
from penstock.config.settings import Settings

__all__ = ["ConfigError", "Pool", "Profile", "Settings", "load"]
