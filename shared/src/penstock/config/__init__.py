"""Settings: `penstock.toml`, then environment, then flags; checked before anything starts."""

from penstock.config.load import ConfigError, load
from penstock.config.settings import Pool, Profile, Settings

__all__ = ["ConfigError", "Pool", "Profile", "Settings", "load"]
