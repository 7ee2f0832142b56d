"""`penstock decode`: explain captured traffic."""
