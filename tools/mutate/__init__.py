"""Mutation tests: small faults are put into the code, one at a time, and tests must notice them."""
