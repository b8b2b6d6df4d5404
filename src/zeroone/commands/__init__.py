"""The commands of ``zeroone``, a module each, and what they show: tables and figures."""
