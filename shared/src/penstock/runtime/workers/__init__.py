"""What a worker and its executor share on their host: assignments, records, claims, pulses."""
