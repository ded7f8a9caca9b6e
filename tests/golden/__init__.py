"""Behaviours of the whole core as text: what each machine was told and what it did, reviewed like code."""
