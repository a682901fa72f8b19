"""What running jobs write: lines of loggers and prints, attributed and stored."""
