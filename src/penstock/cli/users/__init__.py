"""`penstock user`: the credentials of users, in a file of their own."""
