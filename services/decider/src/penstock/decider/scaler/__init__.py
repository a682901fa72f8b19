"""The external scaler: decisions on pools in advisor mode, as KEDA asks for them by gRPC."""
