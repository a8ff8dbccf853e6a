"""Profiles: named sets of rules for passes, one a module."""
