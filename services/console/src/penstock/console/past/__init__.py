"""The installation as it was at a moment, from what the streams and the rows still hold."""
