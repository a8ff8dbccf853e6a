"""Profiles: named sets of rules for passes, one per module."""
