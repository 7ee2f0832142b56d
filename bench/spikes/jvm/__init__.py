"""A reader of the log inside the JVM; see docs/decisions/0028-no-reader-inside-the-jvm-yet.md."""
