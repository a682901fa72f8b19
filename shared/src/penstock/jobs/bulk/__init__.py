"""Operations on many jobs that have not ended: cancel, move, purge."""
