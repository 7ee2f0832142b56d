"""Programs for the development of Penstock; `make help` lists them."""
