"""Networks to ship: integers only, the same scores to the bit wherever they run."""
