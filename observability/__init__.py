"""Metrics, spans and logs of the service, made from facts. No message text ever leaves this package by default."""
