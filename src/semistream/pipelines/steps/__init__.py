"""The ETL steps: joins, surrogate keys, duplicates, snapshot changes."""
