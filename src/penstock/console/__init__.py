"""The console: a web page about a broker, made of the broker's HTTP API alone."""
