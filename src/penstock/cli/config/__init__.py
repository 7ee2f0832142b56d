"""`penstock config`: show and check the settings of a broker."""
