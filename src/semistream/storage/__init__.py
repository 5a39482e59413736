"""Files that survive a crash, and the lock of a writer. Every durable write goes through here."""
