"""ETL steps: chained joins, surrogate keys, duplicate detection and change detection."""
