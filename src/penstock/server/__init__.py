"""The composition root: what a broker process is made of, how it starts and how it stops."""
