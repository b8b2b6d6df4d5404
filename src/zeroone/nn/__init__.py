"""Modules of 0/1 networks."""

from zeroone.nn.step import U_RULES, Step, register_u_rule, step

__all__ = ["U_RULES", "Step", "register_u_rule", "step"]
