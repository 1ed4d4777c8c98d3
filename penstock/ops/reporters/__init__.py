"""Reporters of a driver: where its metrics, spans and events go."""
