"""Commands that query a running broker over HTTP: `topics`, `clients`, `top`."""
