"""How JVMs are started that live a minute: with one quick compiler, and without threads to collect garbage."""

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
