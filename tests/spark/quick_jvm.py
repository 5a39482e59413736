"""Options of JVMs that live for a minute: one quick compiler, and no garbage collection threads."""

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
