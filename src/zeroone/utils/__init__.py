"""Helpers that know nothing of networks: checks, files, records, devices, processes, memory."""
