"""Helpers without networks: checks, files, records, devices, processes, memory."""
