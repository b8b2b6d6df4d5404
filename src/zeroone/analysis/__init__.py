"""What a network does on data, and what it is made of: errors and counts."""
