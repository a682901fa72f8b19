"""What a running job is given, and what becomes of it when its worker is lost."""
