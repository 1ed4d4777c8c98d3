"""Decides what is deployed next, when its slots suffice, and what each deployment contains."""
