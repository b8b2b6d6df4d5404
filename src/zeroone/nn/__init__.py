"""Modules of 0/1 networks, and the registries of their parts."""

from zeroone.nn.backbones import register_backbone
from zeroone.nn.heads import Head, register_head
from zeroone.nn.pooling import Pool, register_pool
from zeroone.nn.step import U_RULES, Step, register_u_rule, step

__all__ = [
    "U_RULES",
    "Head",
    "Pool",
    "Step",
    "register_backbone",
    "register_head",
    "register_pool",
    "register_u_rule",
    "step",
]
