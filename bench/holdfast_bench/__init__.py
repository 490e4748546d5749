"""Holdfast's benchmarks: runs them, and sets what they measured beside the papers' figures.

A package of the source tree, beside the programs that it runs. No wheel has it: `holdfast bench`
hands on to it where it is (holdfast/cli/bench.py).
"""
