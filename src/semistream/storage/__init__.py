"""Crash-safe file writes and the writer lock. Every durable write goes through this package."""
