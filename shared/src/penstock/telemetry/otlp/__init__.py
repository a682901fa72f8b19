"""Export by OTLP. Imported only in processes with a collector: its imports take 0.4 s."""
