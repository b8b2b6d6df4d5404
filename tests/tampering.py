"""Changes anything anywhere in what a file holds, as an attacker or a careless editor may."""

import copy
import json

import torch

from zeroone.utils.checks import InputError

VALUES = (None, True, -1, 0, 7, 10**9, 10**400, 1e-320, 1e308, -0.5, float("nan"), float("inf"))
VALUES += ("", "x", "\0", "digits", [], [1], [[]], ["a", None], {}, {"a": 1})
DEEP = json.loads("[" * 300 + "]" * 300)


def places(tree, place=()):
    """All places in nested dicts and lists, the root aside."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for name, value in items:
        yield (*place, name)
        if isinstance(value, dict | list | tuple) and value:
            yield from places(value, (*place, name))


def tampered(tree, rng):
    """A copy of a tree in which one to three entries are gone, doubled, moved or replaced."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        *way, name = rng.choice(list(places(tree)))
        parent = tree
        for step in way:
            parent = parent[step]
        if isinstance(parent, tuple):
            continue
        value, what = parent[name], rng.randrange(6)
        if what == 0:
            del parent[name]
        elif what == 1 and isinstance(parent, dict):
            parent["other"] = parent.pop(name)
        elif what == 2 and isinstance(parent, list):
            parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(value))
        elif what == 3:
            parent[name] = copy.deepcopy(DEEP)
        else:
            parent[name] = changed(value, rng)
        if not tree:
            break
    return tree


def changed(value, rng):
    if not isinstance(value, torch.Tensor):
        return rng.choice(VALUES)
    made = [
        lambda T: T[..., :-1] if T.ndim else T[None],
        lambda T: T[:0] if T.ndim else T[None],
        lambda T: T[None],
        lambda T: T.flatten(),
        lambda T: T.double() if T.is_floating_point() else T.float(),
        lambda T: T.to(torch.int16),
        lambda T: torch.full_like(T, torch.nan if T.is_floating_point() else 99),
        lambda T: torch.full_like(T, torch.inf if T.is_floating_point() else 0),
        lambda T: -T if T.dtype != torch.bool else ~T,
        lambda T: T.float() * 1e30,
        lambda T: T.flip(0) if T.ndim else T + 1,
    ]
    return rng.choice(made)(value).contiguous()


def outcome(call, seed):
    """Whether a call was done, or refused in one sentence; anything else is an error."""
    try:
        call()
    except InputError as error:
        sentence = str(error)
    except Exception as error:
        raise AssertionError(f"mutation {seed}") from error
    else:
        return "done"
    assert "\n" not in sentence, seed
    return "refused"
