"""What reproduces the paper: run matrices, protocols, tables, figures. No part of the wheel."""
