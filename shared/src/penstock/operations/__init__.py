"""Operating an installation: orders that stand above the settings, and the settings in force."""
