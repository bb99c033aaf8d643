"""Writes tests/data/braces.json: patterns, and how Python's braceexpand expands them (null: unbalanced braces).

Usage: pip install braceexpand==0.1.7 && python make_braces.py > ../data/braces.json
"""

import json
import random

from braceexpand import UnbalancedBracesError, braceexpand

HAND = r"""
s-{000..003}|{00..3}|{3..0}|{-1..1}|{0..10..4}|{01..10..3}|{10..1..3}|{1..3..0}|{1..10..-3}|{a..e}|{a..e..2}|{A..c}
{c..A}|{e..a..2}|{A..A}|{B..A}|{z..A..7}|{a,b}{1..2}|{a,b{1,2}}|x{,y}|{x,}|{,}|{,,}|{x}|{}|{1..a}|{a..1}|{1..}|{..1}
{1..2..}|{1...3}|{1..2..a}|{a..bc}|{1..2..3..4}|a{|}|a}|{|{a,b|{a{b,c}|a,b|plain|{a,{b,{c,d}}}|{{a,b},{c,d}}
{{a,b}}|{{1..3}}|{{x}}|x{{},a}y|{a,b}c{d,e}f|{-03..2}|{2..-03}|{-01..1}|{-0..2}|{0..-0}|{00..00}|{-00..1}|{007..9}
{9..011}|{1..01}|{-5..-1..2}|{5..5}|{5..5..3}|{1..3..99999999999999999999999}|\{a,b\}|{a\,b}|{a\,b,c}|\\{a,b}|\a
{a,b\}}|{a\{,b}|{a\\,b}c|{a\\\\,b}|{{a\\\\\\\\,b},c}|a\\\\b|trailing\|{a,b}\|\}|\{|{\1..3}|{1..3\}|é{à,ü}ß|{é..ü}
gs://b/{train,val}/s-{000..002}.tar|$\{HOME}|${HOME}|a{b}c|{a}{b,c}|{a,b}}{|{ a, b }|{1 ..3}|{+1..3}|{1,2..4}|{1..2,3}
""".replace("\n", "|").strip("|").split("|")

ALPHABET = ["{", "}", ",", "{", "}", ",", "..", "a", "b", "Z", "0", "1", "2", "-", "\\", "x", "07", "{1..3}", "{a,b}"]


def closes_before_it_opens(pattern):
    """braceexpand takes `}{` literally: the crate reports it, so it stays out of the table."""
    depth = at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        else:
            depth += {"{": 1, "}": -1}.get(pattern[at], 0)
        if depth < 0:
            return True
        at += 1
    return False


def expand(pattern):
    try:
        return list(braceexpand(pattern))
    except UnbalancedBracesError:
        return None


rng = random.Random(1)
table = {pattern: expand(pattern) for pattern in HAND if pattern}
while len(table) < 1500:
    pattern = "".join(rng.choice(ALPHABET) for _ in range(rng.randint(2, 14)))
    if closes_before_it_opens(pattern):
        continue
    expanded = expand(pattern)
    # Most random patterns are unbalanced. Only a few of these are kept.
    if len(expanded or []) <= 40 and (expanded or rng.random() < 0.05):
        table[pattern] = expanded
table = {p: e for p, e in table.items() if e is None or not closes_before_it_opens(p)}
rows = (f"{json.dumps(p, ensure_ascii=False)}: {json.dumps(e, ensure_ascii=False)}" for p, e in table.items())
print("{\n" + ",\n".join(rows) + "\n}")
